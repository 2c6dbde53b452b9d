-- A session outlives its sandboxes. What is known about it is one JSON document.
CREATE TABLE sessions (
	id TEXT PRIMARY KEY,
	name TEXT UNIQUE,          -- NULL for none, and once it is closed
	owner TEXT NOT NULL,
	state TEXT NOT NULL,
	sandbox TEXT,              -- the present one
	checkpoint TEXT,           -- what the next one starts from
	key TEXT,                  -- idempotency key, NULL for none
	digest TEXT NOT NULL,      -- of the spec
	created INTEGER NOT NULL,  -- Unix time in nanoseconds
	doc TEXT NOT NULL,
	UNIQUE (owner, key)
) STRICT;
CREATE INDEX sessions_sandbox ON sessions (sandbox) WHERE sandbox IS NOT NULL;
CREATE INDEX sessions_checkpoint ON sessions (checkpoint) WHERE checkpoint IS NOT NULL;

-- A session's log. Nothing is ever changed in it.
CREATE TABLE session_events (
	session TEXT NOT NULL REFERENCES sessions (id),
	seq INTEGER NOT NULL,      -- from 1, without a gap
	time INTEGER NOT NULL,
	kind TEXT NOT NULL,
	data TEXT NOT NULL,        -- JSON, '' for none
	PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;

-- What was asked to be executed, and its outcome: asked for before it is done, so
-- that it can be gone on with, and asked for again without being done again.
CREATE TABLE session_execs (
	session TEXT NOT NULL REFERENCES sessions (id),
	exec TEXT NOT NULL,
	created INTEGER NOT NULL,
	request TEXT NOT NULL,     -- JSON
	result TEXT,               -- JSON; NULL while it goes on
	PRIMARY KEY (session, exec)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_execs_open ON session_execs (session) WHERE result IS NULL;
