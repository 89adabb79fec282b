"""What users write and read: data only, no behaviour beyond validation and rendering."""
