# SPDX-License-Identifier: Apache-2.0
# What `make help` shows of a Makefile: see the lines above that target.
BEGIN { FS = ":.*##[*]? "; if (!all) print "Every day:" }
/^##@ / { group = substr($0, 5); if (!(group in names)) order[++groups] = group }
/^[a-z0-9-]+:.*##[*]? / {
  line = sprintf("  make %-20s %s\n", $1, $2)
  names[group] = names[group] " " $1
  lines[group] = lines[group] line
  if (!all && $0 ~ /##[*] /) printf "%s", line
}
END {
  if (!all) print "\nAll (make help ALL=1 says what each does):"
  for (i = 1; i <= groups; i++)
    if (all) printf "%s%s:\n%s", (i > 1 ? "\n" : ""), order[i], lines[order[i]]
    else printf "  %-12s%s\n", order[i], names[order[i]]
}
