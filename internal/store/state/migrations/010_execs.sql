-- Execs outlive their sandboxes, so nothing refers to those. doc is what the engine
-- knows; the columns are what is looked for.
CREATE TABLE execs (
	sandbox TEXT NOT NULL,
	id TEXT NOT NULL,
	open INTEGER NOT NULL,     -- 1 until it has ended and nothing writes its output
	started INTEGER NOT NULL,  -- Unix time in nanoseconds
	ended INTEGER,             -- NULL until it has
	size INTEGER NOT NULL,     -- bytes of output that are kept; 0 while it is open
	doc TEXT NOT NULL,
	PRIMARY KEY (sandbox, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX execs_open ON execs (sandbox) WHERE open = 1;
CREATE INDEX execs_ended ON execs (ended) WHERE ended IS NOT NULL;
