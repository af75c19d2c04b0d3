"""The sections of a plan that serves: `verdict.py` has the first page, `service.py` rates, curve and rooflines."""
