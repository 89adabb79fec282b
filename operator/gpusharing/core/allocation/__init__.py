"""Which of the free devices a request gets."""
