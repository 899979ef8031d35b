"""What users see: text, JSON, tables, figures, report and watch."""
