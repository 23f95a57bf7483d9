-- The end of the oldest attempt in an entry, in milliseconds: a purge finds entries by it. None is known of those written before.
ALTER TABLE sluice.ended ADD COLUMN oldest_end bigint NOT NULL DEFAULT 0;
CREATE INDEX ended_by_oldest_end ON sluice.ended (oldest_end);
