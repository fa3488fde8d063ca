#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Measures a baseline and a candidate, judges the candidate, and leaves what CI
# keeps: the runs, gate.md, gate.xml (JUnit), gate.json.
#
#   ci/gate.sh lab MEASUREMENT KERNEL KERNEL [OPTION...]
#       two kernels (a series as 6.12, or an image), each in a guest, in virtual
#       time where the measurement has it; further options of `durabench lab run`
#   ci/gate.sh host MEASUREMENT TARGET STRATEGY STRATEGY [OPTION...]
#       two strategies on this host, interleaved; further options of
#       `durabench run`, as --destroy
#
#   OUTPUT=DIR     where to (default: build/gate), new or empty
#   REPEAT=N       repetitions (default: 2 in virtual time, which repeats; 7 on
#                  a host, the fewest that find anything in six metrics)
#   GATE='OPT...'  further options of `durabench gate`, as --strict
#   DURABENCH=PATH the command (default: that of this checkout)
#
# Ends as `durabench gate` does: 0 pass, 1 regression, 2 inconclusive, 3 invalid
# data, 64 usage.
set -eu
: "${DURABENCH:=$(dirname "$0")/../scripts/durabench}" "${OUTPUT:=build/gate}"

usage() {
	sed -n 's/^#   \(ci.*\)/\1/p' "$0" >&2
	exit 64
}

# A measurement that fails is no regression: what is there of it is judged, or
# found to be none.
measure() {
	mkdir -p "$OUTPUT"
	status=0
	"$DURABENCH" "$@" || status=$?
	[ $status -ne 64 ] || exit 64
}

[ $# -ge 4 ] || usage
way=$1 measurement=$2
case $way in
lab)
	baseline=$3 candidate=$4
	shift 4
	measure lab run "$measurement" --kernel "$baseline" \
		--repeat "${REPEAT:-2}" -o "$OUTPUT/baseline" "$@"
	measure lab run "$measurement" --kernel "$candidate" \
		--repeat "${REPEAT:-2}" -o "$OUTPUT/candidate" "$@"
	# A folder for the one kernel.
	baseline=$(echo "$OUTPUT"/baseline/*/run.json)
	candidate=$(echo "$OUTPUT"/candidate/*/run.json)
	;;
host)
	[ $# -ge 5 ] || usage
	target=$3
	baseline=$OUTPUT/run:$4 candidate=$OUTPUT/run:$5
	strategies="--strategy=$4 --strategy=$5"
	shift 5
	# shellcheck disable=SC2086  # a list of words
	measure run "$measurement" --target "$target" $strategies \
		--repeat "${REPEAT:-7}" --output "$OUTPUT/run" "$@"
	;;
*)
	usage
	;;
esac

# shellcheck disable=SC2086  # a list of words
exec "$DURABENCH" gate --baseline "$baseline" --candidate "$candidate" \
	--markdown "$OUTPUT/gate.md" --junit "$OUTPUT/gate.xml" \
	--json "$OUTPUT/gate.json" ${GATE:-}
