"""A package for pytest, so that a fixture can last as long as its tests."""
