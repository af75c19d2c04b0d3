"""Measurements as the fitted prices of an accelerator, each with its error on what the fit had not seen.

Takes files of evidence; gives an accelerator's spec with fitted curves, a page, and tables of documents. `calibrate.py`
goes from files to fitted devices, and is to be read first; `curves.py` is the fit itself.
"""
