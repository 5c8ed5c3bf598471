#!/bin/bash
# The part for Debian of bin/installdependencies.sh, as actions/runner has it (src/Misc/layoutbin, 258d6c857).
apt_get=apt-get
print_errormessage() { echo "Can't install dotnet core dependencies."; }

$apt_get update && $apt_get install -y libkrb5-3 zlib1g
if [ $? -ne 0 ]
then
    echo "'$apt_get' failed with exit code '$?'"
    print_errormessage
    exit 1
fi

apt_get_with_fallbacks() {
    $apt_get install -y $1
    fail=$?
    if [ $fail -eq 0 ]
    then
        if [ "${1#"${1%?}"}" = '$' ]; then
            dpkg -l "${1%?}" > /dev/null 2> /dev/null
            fail=$?
        fi
    fi
    if [ $fail -ne 0 ]
    then
        shift
        if [ -n "$1" ]
        then
            apt_get_with_fallbacks "$@"
        fi
    fi
}

apt_get_with_fallbacks liblttng-ust1t64 liblttng-ust1 liblttng-ust0
if [ $? -ne 0 ]
then
    echo "'$apt_get' failed with exit code '$?'"
    print_errormessage
    exit 1
fi

apt_get_with_fallbacks libssl3t64$ libssl3$ libssl1.1$ libssl1.0.2$ libssl1.0.0$
if [ $? -ne 0 ]
then
    echo "'$apt_get' failed with exit code '$?'"
    print_errormessage
    exit 1
fi

apt_get_with_fallbacks libicu80 libicu79 libicu78 libicu77 libicu76 libicu75 libicu74 libicu73 libicu72 libicu71 libicu70 libicu69 libicu68 libicu67 libicu66 libicu65 libicu63 libicu60 libicu57 libicu55 libicu52
if [ $? -ne 0 ]
then
    echo "'$apt_get' failed with exit code '$?'"
    print_errormessage
    exit 1
fi
