"""What users see: text, JSON, tables, figures, report and watch. Imports results and below; no transport or launch."""
