"""torchtitan's job files as plans: `plan.import_job` takes the TOML and gives the plan with notes on what it lacks."""
