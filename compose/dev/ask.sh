#!/bin/sh
# Drops the demo's payloads into the shared directory, the way a backend does: temporary name, then rename.
set -eu
: "${OPENCLAW_SHARED_DIR:?}" "${DEMO_DIR:?}" "${GITEA_URL:?}" "${GITEA_BOT_USERNAME:?}"
shared=$OPENCLAW_SHARED_DIR
mkdir -p "$shared/payloads" "$shared/results" "$shared/attachments" "$shared/.kbw"
cp "$DEMO_DIR"/attachments/* "$shared/attachments/"
for job in "$DEMO_DIR"/jobs/*.json; do
    name=${job##*/}
    sed -e "s|\${sharedDir}|$shared|g" -e "s|\${giteaUrl}|$GITEA_URL|g" \
        -e "s|\${giteaOwner}|$GITEA_BOT_USERNAME|g" -e "s|\${kbRepo}|kb|g" \
        "$job" >"$shared/payloads/.$name.tmp"
    mv "$shared/payloads/.$name.tmp" "$shared/payloads/$name"
    echo "ask: dropped payloads/$name; the answer will be in results/$name"
done
