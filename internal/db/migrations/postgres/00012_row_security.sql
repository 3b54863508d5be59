-- Row-level security: a session sees and writes the rows of the organisation that
-- its setting zopday.org names, those of all when it is '*', and none when it is
-- not set. The rows of the installation itself (org_id '') may be read by every
-- organisation and are written by '*' alone. The tables' owner is bound as well.
--
-- The settings are read in sub-selects, which PostgreSQL evaluates once a statement.
--
-- The function puts this on every table of the schema that has none of it yet; it
-- is called again after each later migration, so that a new table is covered too.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION zopday_protect() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    t record;
    everything constant text := $q$(SELECT current_setting('zopday.org', true)) = '*'$q$;
    mine text;
BEGIN
    FOR t IN
        SELECT c.oid, c.relname::text AS name, EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname = 'org_id' AND NOT a.attisdropped) AS owned
        FROM pg_class AS c
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
            AND (NOT c.relrowsecurity OR NOT c.relforcerowsecurity OR NOT EXISTS (SELECT FROM pg_policy AS p WHERE p.polrelid = c.oid AND p.polname = 'zopday_org'))
        ORDER BY c.relname
    LOOP
        IF t.name = 'organisations' THEN
            mine := $q$id = (SELECT nullif(current_setting('zopday.org', true), '')) OR $q$ || everything;
        ELSIF t.owned THEN
            mine := $q$org_id = (SELECT nullif(current_setting('zopday.org', true), '')) OR $q$ || everything;
        ELSIF t.name = 'schema_migrations' THEN
            mine := everything;
        ELSE
            RAISE EXCEPTION 'the table % does not say which organisation a row belongs to: it has no column org_id', t.name;
        END IF;
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t.name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t.name);
        EXECUTE format('DROP POLICY IF EXISTS zopday_org ON %I', t.name);
        EXECUTE format('CREATE POLICY zopday_org ON %I USING (%s) WITH CHECK (%s)', t.name, mine, mine);
        EXECUTE format('DROP POLICY IF EXISTS zopday_installation ON %I', t.name);
        IF t.name IN ('settings', 'workers') THEN
            EXECUTE format($q$CREATE POLICY zopday_installation ON %I FOR SELECT USING (org_id = '' AND (SELECT current_setting('zopday.org', true)) <> '')$q$, t.name);
        ELSIF t.name = 'schema_migrations' THEN
            EXECUTE format('CREATE POLICY zopday_installation ON %I FOR SELECT USING (true)', t.name);
        END IF;
    END LOOP;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION zopday_protect() FROM PUBLIC;
SELECT zopday_protect();

-- +goose Down
-- +goose StatementBegin
DO $$
DECLARE
    t record;
BEGIN
    FOR t IN SELECT c.relname::text AS name FROM pg_class AS c JOIN pg_policy AS p ON p.polrelid = c.oid AND p.polname = 'zopday_org'
        WHERE c.relnamespace = current_schema()::regnamespace
    LOOP
        EXECUTE format('DROP POLICY IF EXISTS zopday_installation ON %I', t.name);
        EXECUTE format('DROP POLICY zopday_org ON %I', t.name);
        EXECUTE format('ALTER TABLE %I NO FORCE ROW LEVEL SECURITY', t.name);
        EXECUTE format('ALTER TABLE %I DISABLE ROW LEVEL SECURITY', t.name);
    END LOOP;
END $$;
-- +goose StatementEnd
DROP FUNCTION zopday_protect();
