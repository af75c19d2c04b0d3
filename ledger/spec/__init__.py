"""The first stage: texts -> plans. `load` reads; everything else is what it reads into, and holds it to."""
