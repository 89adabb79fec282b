"""One file = one kind of key: gather → decide → apply → report. Create, change, delete and resync are the same path."""
