#!/bin/sh
# Run the fit that server.toml describes: TLS and authentication of the sites are on.
cd "$(dirname "$0")" || exit 1
umask 077
exec dpsep federate server --config server.toml
