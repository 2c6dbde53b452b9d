-- What is known about a sandbox is one JSON document; the columns are what is
-- looked for or has to be unique.
CREATE TABLE sandboxes (
	id TEXT PRIMARY KEY,
	name TEXT UNIQUE,          -- NULL once it has ended
	owner TEXT NOT NULL,
	state TEXT NOT NULL,
	created INTEGER NOT NULL,  -- Unix time in nanoseconds
	expires INTEGER,           -- NULL: never
	doc TEXT NOT NULL
) STRICT;
CREATE INDEX sandboxes_state ON sandboxes (state, created);

CREATE TABLE idempotency (
	owner TEXT NOT NULL,
	key TEXT NOT NULL,
	digest TEXT NOT NULL,      -- of the spec
	sandbox TEXT NOT NULL,
	created INTEGER NOT NULL,
	PRIMARY KEY (owner, key)
) STRICT;
