"""Measurements -> the fitted prices of an accelerator, each with its error on what the fit had not seen."""
