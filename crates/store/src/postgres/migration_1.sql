CREATE SCHEMA IF NOT EXISTS sluice;

CREATE TABLE sluice.schema_version (version integer NOT NULL);
INSERT INTO sluice.schema_version VALUES (0);

CREATE TABLE sluice.cluster (identity text NOT NULL);

-- Where the history ends, who may continue it, and the high-water mark. One row.
CREATE TABLE sluice.head (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch bigint NOT NULL DEFAULT 0,
    seq bigint NOT NULL DEFAULT 0,
    chain bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex'),
    term bigint NOT NULL DEFAULT 0,
    leased_ids bigint NOT NULL DEFAULT 0,
    mark_seq bigint NOT NULL DEFAULT 0,
    mark_chain bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex')
);
INSERT INTO sluice.head DEFAULT VALUES;

-- Who leads, until when by this database's clock. One row.
CREATE TABLE sluice.lease (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch bigint NOT NULL DEFAULT 0,
    holder text NOT NULL DEFAULT '',
    valid_until timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO sluice.lease DEFAULT VALUES;

-- One row a commit. The frame has the bytes that it has in a journal of files.
CREATE TABLE sluice.journal (last_seq bigint PRIMARY KEY, frame bytea NOT NULL);
ALTER TABLE sluice.journal ALTER COLUMN frame SET STORAGE EXTERNAL;

-- Snapshots and blobs. What no extent covers is zero; extents do not overlap.
CREATE TABLE sluice.file (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    path text COLLATE "C" NOT NULL UNIQUE,
    len bigint NOT NULL DEFAULT 0
);
CREATE TABLE sluice.extent (
    file bigint NOT NULL REFERENCES sluice.file ON DELETE CASCADE,
    begins bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (file, begins)
);
ALTER TABLE sluice.extent ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- What the books of every server are made from, in the journal's order.
CREATE TABLE sluice.ended (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    seq bigint NOT NULL,
    entry bytea NOT NULL
);
CREATE INDEX ended_by_seq ON sluice.ended (seq);
