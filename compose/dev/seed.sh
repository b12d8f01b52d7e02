#!/bin/sh
# Seeds a fresh Gitea for compose.dev.yaml: the bot's account, and its repository `kb` with the demo's pages.
# Safe to run again: what is there already stays as it is.
set -eu
: "${GITEA_URL:?}" "${GITEA_BOT_USERNAME:?}" "${GITEA_BOT_TOKEN:?}"
pages=${KB_DIR:-/kb}

if gitea admin user list | awk '{print $2}' | grep -Fqx -- "$GITEA_BOT_USERNAME"; then
    echo "seed: user $GITEA_BOT_USERNAME is there"
else
    gitea admin user create --username "$GITEA_BOT_USERNAME" --password "$GITEA_BOT_TOKEN" \
        --email "$GITEA_BOT_USERNAME@localhost.localdomain" --must-change-password=false
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Git asks this for user and password, so that neither stands in an argument list or a URL.
cat >"$work/askpass" <<'ASKPASS'
#!/bin/sh
case $1 in Username*) echo "$GITEA_BOT_USERNAME" ;; *) echo "$GITEA_BOT_TOKEN" ;; esac
ASKPASS
chmod 700 "$work/askpass"
export GIT_ASKPASS="$work/askpass" GIT_TERMINAL_PROMPT=0 HOME="$work"
repository="${GITEA_URL%/}/$GITEA_BOT_USERNAME/kb.git"

if git ls-remote --exit-code --heads "$repository" >/dev/null 2>&1; then
    echo "seed: $repository holds pages already"
    exit 0
fi
mkdir "$work/kb"
cp -R "$pages/." "$work/kb/"
cd "$work/kb"
git init -q -b main .
git add -A
git -c user.name="$GITEA_BOT_USERNAME" -c user.email="$GITEA_BOT_USERNAME@localhost.localdomain" \
    commit -q -m "Demo knowledge base"
git push -q "$repository" main
echo "seed: pushed $(git ls-files | wc -l) files to $repository"
