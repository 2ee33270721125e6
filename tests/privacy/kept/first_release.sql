--
-- PostgreSQL database dump
--


-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: dpsep_first_release; Type: SCHEMA; Schema: -; Owner: owner
--

CREATE SCHEMA dpsep_first_release;


ALTER SCHEMA dpsep_first_release OWNER TO owner;

--
-- Name: SCHEMA dpsep_first_release; Type: COMMENT; Schema: -; Owner: owner
--

COMMENT ON SCHEMA dpsep_first_release IS 'dpsep ledger, format 1';


--
-- Name: count(); Type: FUNCTION; Schema: dpsep_first_release; Owner: owner
--

CREATE FUNCTION dpsep_first_release.count() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
  UPDATE "dpsep_first_release".head SET count = NEW.number, hash = NEW.hash;
  RETURN NULL;
END
$$;


ALTER FUNCTION dpsep_first_release.count() OWNER TO owner;

--
-- Name: forward(); Type: FUNCTION; Schema: dpsep_first_release; Owner: owner
--

CREATE FUNCTION dpsep_first_release.forward() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
  IF NEW.count IS DISTINCT FROM OLD.count + 1 OR NOT EXISTS (
    SELECT FROM "dpsep_first_release".entries WHERE number = NEW.count AND hash = NEW.hash
  ) THEN
    RAISE EXCEPTION 'a ledger only appends' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END
$$;


ALTER FUNCTION dpsep_first_release.forward() OWNER TO owner;

--
-- Name: refuse(); Type: FUNCTION; Schema: dpsep_first_release; Owner: owner
--

CREATE FUNCTION dpsep_first_release.refuse() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
  RAISE EXCEPTION 'a ledger only appends' USING ERRCODE = 'integrity_constraint_violation';
END
$$;


ALTER FUNCTION dpsep_first_release.refuse() OWNER TO owner;

--
-- Name: take_turn(); Type: FUNCTION; Schema: dpsep_first_release; Owner: owner
--

CREATE FUNCTION dpsep_first_release.take_turn() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
  last record;
BEGIN
  SELECT count, hash INTO STRICT last FROM "dpsep_first_release".head FOR UPDATE;
  IF NEW.number IS DISTINCT FROM last.count + 1 OR NEW.previous IS DISTINCT FROM last.hash THEN
    RAISE EXCEPTION 'a ledger only appends: this row is not the next one' USING ERRCODE = 'DP001';
  END IF;
  RETURN NEW;
END
$$;


ALTER FUNCTION dpsep_first_release.take_turn() OWNER TO owner;

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: entries; Type: TABLE; Schema: dpsep_first_release; Owner: owner
--

CREATE TABLE dpsep_first_release.entries (
    number bigint NOT NULL,
    "time" text NOT NULL,
    run text NOT NULL,
    kind text NOT NULL,
    epsilon text NOT NULL,
    delta text NOT NULL,
    rdp text,
    relation text NOT NULL,
    unit text NOT NULL,
    event text NOT NULL,
    previous text NOT NULL,
    hash text NOT NULL,
    token text NOT NULL
);


ALTER TABLE dpsep_first_release.entries OWNER TO owner;

--
-- Name: head; Type: TABLE; Schema: dpsep_first_release; Owner: owner
--

CREATE TABLE dpsep_first_release.head (
    count bigint NOT NULL,
    hash text NOT NULL
);


ALTER TABLE dpsep_first_release.head OWNER TO owner;

--
-- Data for Name: entries; Type: TABLE DATA; Schema: dpsep_first_release; Owner: owner
--

COPY dpsep_first_release.entries (number, "time", run, kind, epsilon, delta, rdp, relation, unit, event, previous, hash, token) FROM stdin;
1	2026-11-18T22:10:47+00:00		create	3.0	1e-05	\N	zero-out	record	{"ledger":"811880a2980cbd42a360b95ade9575eb","rule":"sum"}	0000000000000000000000000000000000000000000000000000000000000000	a1590c1260c2e769c84d6302c8bec85936d84452c13b519751393b34732ee5ae	f2dcef01b43a6dbc2d14c0d70bff027b
2	2026-11-18T22:10:47+00:00	first	charge	0.1	1e-06	\N	zero-out	record	{"records":1000,"sampling":"poisson","sigma":3.5,"steps":20}	a1590c1260c2e769c84d6302c8bec85936d84452c13b519751393b34732ee5ae	3ecab4124df930338bb9c38af0496f3b9492018cba5e3c5be74ce906325c00d6	2d615e8a20c03c1905c2cd5e6f88246e
3	2026-11-18T22:10:47+00:00	first	release	0.0	0.0	\N	zero-out	record	{"number":0}	3ecab4124df930338bb9c38af0496f3b9492018cba5e3c5be74ce906325c00d6	fc6e911c66a5144718b16983cbfa17d1c550c127ada255e50dc95908aec3d472	203457b2f208a69e1a9363963bc4f09c
4	2026-11-18T22:10:47+00:00	first	release	0.0	0.0	\N	zero-out	record	{"number":1}	fc6e911c66a5144718b16983cbfa17d1c550c127ada255e50dc95908aec3d472	da4b6be6e9d31cdfce43282e65551c70c70fa1e4a32bd2c7aa05e6fa50c8f53c	7f834c9cf3b4b3268257cab839bcef18
5	2026-11-18T22:10:47+00:00	first	failed	0.0	0.0	\N	zero-out	record	{}	da4b6be6e9d31cdfce43282e65551c70c70fa1e4a32bd2c7aa05e6fa50c8f53c	ab79c4ffc6e008ddf1ab59bccae68b3ebdab4d4b92b38e1fdc8a5c1e5776a06a	163ae153066e319bcdbf563c924756e8
6	2026-11-18T22:10:48+00:00	first	extra-step	0.25	0.0	["0.5","inf"]	replace-one	record	{"note":"\\u00fcn\\u00ef","records":1000,"sampling":"poisson","sigma":3.5,"steps":20}	ab79c4ffc6e008ddf1ab59bccae68b3ebdab4d4b92b38e1fdc8a5c1e5776a06a	db834a7fc30e7be409efe844d09809473dd6c976b272c201679fd489a85b6a30	ed461f5e7fc2a4326dbe4d36d5dd81ab
7	2026-11-18T22:10:48+00:00	first	finished	0.0	0.0	\N	zero-out	record	{}	db834a7fc30e7be409efe844d09809473dd6c976b272c201679fd489a85b6a30	c61aa3d778b15b631558f63fdb067809d1dd3fbc3b1848df232fcaff06489d45	8652256d2f7e50d0143bc73b465a24cc
8	2026-11-18T22:10:48+00:00	sécond	charge	1.0	2e-06	\N	zero-out	record	{"records":1000,"sampling":"poisson","sigma":3.5,"steps":20}	c61aa3d778b15b631558f63fdb067809d1dd3fbc3b1848df232fcaff06489d45	bf429931ab75390f73619bf0ba26fc676bcaa7027cfc8195cb9971f2693b34a2	f07074e638e9816b7d4cd99956d4ccf8
\.


--
-- Data for Name: head; Type: TABLE DATA; Schema: dpsep_first_release; Owner: owner
--

COPY dpsep_first_release.head (count, hash) FROM stdin;
8	bf429931ab75390f73619bf0ba26fc676bcaa7027cfc8195cb9971f2693b34a2
\.


--
-- Name: entries entries_pkey; Type: CONSTRAINT; Schema: dpsep_first_release; Owner: owner
--

ALTER TABLE ONLY dpsep_first_release.entries
    ADD CONSTRAINT entries_pkey PRIMARY KEY (number);


--
-- Name: entries entries_token_key; Type: CONSTRAINT; Schema: dpsep_first_release; Owner: owner
--

ALTER TABLE ONLY dpsep_first_release.entries
    ADD CONSTRAINT entries_token_key UNIQUE (token);


--
-- Name: entries entries_counted; Type: TRIGGER; Schema: dpsep_first_release; Owner: owner
--

CREATE TRIGGER entries_counted AFTER INSERT ON dpsep_first_release.entries FOR EACH ROW EXECUTE FUNCTION dpsep_first_release.count();


--
-- Name: entries entries_in_turn; Type: TRIGGER; Schema: dpsep_first_release; Owner: owner
--

CREATE TRIGGER entries_in_turn BEFORE INSERT ON dpsep_first_release.entries FOR EACH ROW EXECUTE FUNCTION dpsep_first_release.take_turn();


--
-- Name: entries entries_stay; Type: TRIGGER; Schema: dpsep_first_release; Owner: owner
--

CREATE TRIGGER entries_stay BEFORE DELETE OR UPDATE OR TRUNCATE ON dpsep_first_release.entries FOR EACH STATEMENT EXECUTE FUNCTION dpsep_first_release.refuse();


--
-- Name: head head_forward; Type: TRIGGER; Schema: dpsep_first_release; Owner: owner
--

CREATE TRIGGER head_forward BEFORE UPDATE ON dpsep_first_release.head FOR EACH ROW EXECUTE FUNCTION dpsep_first_release.forward();


--
-- Name: head head_stays; Type: TRIGGER; Schema: dpsep_first_release; Owner: owner
--

CREATE TRIGGER head_stays BEFORE INSERT OR DELETE OR TRUNCATE ON dpsep_first_release.head FOR EACH STATEMENT EXECUTE FUNCTION dpsep_first_release.refuse();


--
-- PostgreSQL database dump complete
--


