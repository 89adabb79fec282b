"""Shell: watches, decides by the core, writes. The only part that knows Kopf."""
