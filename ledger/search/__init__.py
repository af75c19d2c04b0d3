"""Every legal layout of a plan, priced as arrays.

Takes a plan and a question (`question`: objective, conditions, front); gives the best layouts, the Pareto front and
counts (`sweep.sweep`), or a few recommended edits of the plan (`recommend.recommend`, kept by `recommendation_cache`).
Read `space` first: it says what a layout is. Then `pricing`, which splits a space into pieces and prices them as
blocks, from facts that `structures` and `world` trace once and `evaluation` puts together; `tasks` and `workers` run
the pieces, `found` adds their results.
"""
