"""What another input would give: the slope of a total, other layouts, the value that meets conditions."""
