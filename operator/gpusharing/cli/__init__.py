"""The kubectl plugin `kubectl gpusharing`: files and cluster in, tables and exit codes out."""
