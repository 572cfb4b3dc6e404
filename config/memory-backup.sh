#!/bin/sh
# memory-backup.sh FILE FOLDER: a dated copy of a fact store, taken beside its writers, published only when it checks.
set -eu
file=$1
for there in "-f $file" "-d $2"; do
    test "${there%% *}" "${there#* }" || {
        printf 'memory-backup: %s: is not there\n' "${there#* }" >&2
        exit 1
    }
done
to=$2/memory-$(date -u +%Y-%m-%dT%H%M%SZ).db
umask 077
part=$to.part
rm -f "$part"
trap 'rm -f "$part"' EXIT
# a file name of SQL's: its quotes doubled
name=$(printf %s "$part" | sed "s/'/''/g")
sqlite3 -bail -cmd '.timeout 5000' "file:$file?mode=ro" "VACUUM INTO '$name'"
checked=$(sqlite3 -bail "$part" 'PRAGMA integrity_check')
[ "$checked" = ok ] || {
    printf 'memory-backup: %s: the copy does not check: %s\n' "$file" "$checked" >&2
    exit 1
}
# as it is in the file: no reason to have no copy, and `mem0audit audit --memory-db` names the facts
[ -z "$(sqlite3 -bail "$part" 'PRAGMA foreign_key_check')" ] ||
    printf 'memory-backup: %s: some facts point to one that is gone\n' "$file" >&2
sync "$part"
mv -n "$part" "$to"
[ ! -e "$part" ] || {
    printf 'memory-backup: %s is there already\n' "$to" >&2
    exit 1
}
sync "$2"
printf '%s\n' "$to"
