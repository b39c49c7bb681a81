"""What people see of a store: tables in notebooks, plots, timelines, progress bars."""
