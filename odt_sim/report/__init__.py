"""What runs leave on disk, and how they compare: records, tables, figures and a page."""
