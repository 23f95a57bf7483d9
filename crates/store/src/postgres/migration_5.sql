-- What ended is kept by the month of its newest end, so that a purge drops whole months. What is there stays in the partition of
-- entries without a time, where an older program that still leads writes too; the leader puts it into its months, some at a time.
LOCK TABLE sluice.ended IN ACCESS EXCLUSIVE MODE;
DROP INDEX sluice.ended_by_seq;
DROP INDEX sluice.ended_by_oldest_end;
ALTER TABLE sluice.ended RENAME TO ended_undated;
ALTER TABLE sluice.ended_undated DROP CONSTRAINT ended_pkey;
ALTER TABLE sluice.ended_undated ALTER COLUMN number DROP IDENTITY;
ALTER TABLE sluice.ended_undated ALTER COLUMN number SET NOT NULL;
ALTER TABLE sluice.ended_undated
    ADD COLUMN newest_end bigint NOT NULL DEFAULT 9223372036854775807,
    ADD COLUMN records integer,
    ADD COLUMN outlives_records boolean NOT NULL DEFAULT true;

CREATE SEQUENCE sluice.ended_number;
SELECT setval('sluice.ended_number',
    (SELECT coalesce(max(number), 0) + 1 FROM sluice.ended_undated), false);

-- Ends are in milliseconds; that of an entry without a time is the largest number. The number of records is not known of an entry
-- that an older program wrote. An entry that outlives its records has deleted runs, or what was done beside the jobs.
CREATE TABLE sluice.ended (
    number bigint NOT NULL DEFAULT nextval('sluice.ended_number'),
    seq bigint NOT NULL,
    entry bytea NOT NULL,
    oldest_end bigint NOT NULL DEFAULT 0,
    newest_end bigint NOT NULL DEFAULT 9223372036854775807,
    records integer,
    outlives_records boolean NOT NULL DEFAULT true,
    CONSTRAINT ended_by_number PRIMARY KEY (number, newest_end)
) PARTITION BY RANGE (newest_end);
CREATE INDEX ended_by_seq ON sluice.ended (seq, number);
CREATE INDEX ended_by_oldest_end ON sluice.ended (oldest_end, number);
ALTER TABLE sluice.ended ATTACH PARTITION sluice.ended_undated
    FOR VALUES FROM (9223372036854775807) TO (MAXVALUE);
CREATE INDEX ended_unread ON sluice.ended_undated (number) WHERE records IS NULL;

-- The months that have a partition.
CREATE TABLE sluice.ended_month (
    name text COLLATE "C" PRIMARY KEY,
    begins bigint NOT NULL,
    ends bigint NOT NULL
);

-- Makes the partitions of the month of this end and of the next one, where they are not there; the bounds of the first. A table that
-- is attached does not wait for those who read the others, as a dump does.
CREATE FUNCTION sluice.make_ended_month(ended_at bigint) RETURNS bigint[]
LANGUAGE plpgsql SET search_path = pg_catalog SET lock_timeout = '3s' AS $$
DECLARE
    first_day timestamp := date_trunc('month', to_timestamp(ended_at / 1000) AT TIME ZONE 'UTC');
    part_name text;
    from_ms bigint;
    to_ms bigint;
    bounds bigint[];
BEGIN
    FOR ahead IN 0..1 LOOP
        part_name := 'ended_' || to_char(first_day, 'YYYY_MM');
        from_ms := extract(epoch FROM first_day) * 1000;
        first_day := first_day + interval '1 month';
        to_ms := extract(epoch FROM first_day) * 1000;
        bounds := coalesce(bounds, ARRAY[from_ms, to_ms]);
        CONTINUE WHEN EXISTS (SELECT 1 FROM sluice.ended_month m WHERE m.name = part_name);
        EXECUTE format('CREATE TABLE sluice.%I (LIKE sluice.ended INCLUDING DEFAULTS)', part_name);
        EXECUTE format('ALTER TABLE sluice.ended ATTACH PARTITION sluice.%I
            FOR VALUES FROM (%s) TO (%s)', part_name, from_ms, to_ms);
        INSERT INTO sluice.ended_month (name, begins, ends) VALUES (part_name, from_ms, to_ms);
    END LOOP;
    RETURN bounds;
END $$;

-- Drops the months that end before this time and have nothing but records, a year of them at most; how many records they had. A
-- table that is dropped waits for all who read any month, as a dump does, and commits of the leader wait behind it: it is given up
-- soon, before PostgreSQL would end the dump where the two wait for each other.
CREATE FUNCTION sluice.drop_ended_months(purge_before bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog SET lock_timeout = '200ms' AS $$
DECLARE
    part_name text;
    is_needed boolean;
    records_there bigint;
    records_dropped bigint := 0;
BEGIN
    FOR part_name IN
        SELECT m.name FROM sluice.ended_month m WHERE m.ends <= purge_before
        ORDER BY m.begins LIMIT 12
    LOOP
        EXECUTE format('SELECT coalesce(bool_or(outlives_records), false), coalesce(sum(records), 0)
            FROM sluice.%I', part_name) INTO is_needed, records_there;
        CONTINUE WHEN is_needed;
        EXECUTE format('DROP TABLE sluice.%I', part_name);
        DELETE FROM sluice.ended_month m WHERE m.name = part_name;
        records_dropped := records_dropped + records_there;
    END LOOP;
    RETURN records_dropped;
END $$;
