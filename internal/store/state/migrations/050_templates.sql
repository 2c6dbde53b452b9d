-- What is known about a template or volume is one JSON document; the columns are
-- what is looked for or has to be unique.
CREATE TABLE templates (
	name TEXT PRIMARY KEY,     -- NAME:TAG
	owner TEXT NOT NULL,
	state TEXT NOT NULL,       -- building, ready, failed
	digest TEXT NOT NULL,      -- of the image; '' until there is one
	created INTEGER NOT NULL,  -- Unix time in nanoseconds
	doc TEXT NOT NULL
) STRICT;

CREATE TABLE volumes (
	name TEXT PRIMARY KEY,
	owner TEXT NOT NULL,
	created INTEGER NOT NULL,
	doc TEXT NOT NULL
) STRICT;
