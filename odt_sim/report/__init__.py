"""Reports on recorded runs and their comparison: tables, plots and a page."""
