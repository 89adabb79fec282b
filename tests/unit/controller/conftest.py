"""Plain log lines: unconfigured, structlog draws a traceback with every local variable, which takes seconds."""

import structlog

structlog.configure(processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer()])
