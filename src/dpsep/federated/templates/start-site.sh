#!/bin/sh
# Keep the site $name connected: when the server goes away, wait and connect again.
cd "$(dirname "$0")" || exit 1
umask 077
while :; do
    dpsep federate site --config site.toml
    [ $? -eq 2 ] && exit 2  # settings that cannot work
    sleep 5
done
