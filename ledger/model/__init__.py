"""Operations of one device, derived from a plan: what each role computes, sends, saves and holds in a step.

Behind this door: components write operations over named dims on a `Tape` under a layout, `backward` derives their
gradients, `recompute` says what is saved, and `units` makes layers and ends of a model of them. `program.program` takes
a `Plan` and a `schedule.Role` and gives all that one device runs; `serving.served_units` does so for passes that serve.
Sizes are symbols of the table in `dims`; prices are unknown here. Read `operations`, `tape` and `units` first.
"""
