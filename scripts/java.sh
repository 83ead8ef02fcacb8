#!/usr/bin/env bash
# Prints the home of a Java 17 or newer, for JAVA_HOME; says everything else on standard error.
#
# Looks in JAVA_HOME, then in PATH. Where neither has one, root on a Debian-like system gets it through apt-get;
# anybody else is shown the command for their system, and the script fails.
set -euo pipefail
oldest=17

say() { printf 'java: %s\n' "$*" >&2; }

# home_of JAVA: prints the home of this java, or fails if it does not run or is too old.
home_of() {
    local settings version
    settings=$("$1" -XshowSettings:properties -version 2>&1) || return 1
    version=$(printf '%s\n' "$settings" | sed -n 's/^ *java\.specification\.version = //p')
    case $version in
        '' | *[!0-9]*) return 1 ;; # 1.8 and whatever is no Java at all
    esac
    [ "$version" -ge "$oldest" ] || return 1
    printf '%s\n' "$settings" | sed -n 's/^ *java\.home = //p'
}

find_java() {
    local found
    if [ -n "${JAVA_HOME:-}" ]; then
        if home_of "$JAVA_HOME/bin/java"; then return; fi
        say "JAVA_HOME=$JAVA_HOME has no Java $oldest or newer; looking in PATH"
    fi
    if found=$(command -v java) && home_of "$found"; then return; fi
    return 1
}

# After apt-get: PATH may still lead to an older Java that was chosen by hand, so look where Debian puts them all.
find_installed() {
    local candidate
    for candidate in /usr/lib/jvm/*/bin/java; do
        if [ -x "$candidate" ] && home_of "$candidate"; then return; fi
    done
    return 1
}

install_with_apt() {
    local package
    apt-get update -qq >&2
    for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
        if [ -n "$(apt-cache search --names-only "^${package}\$")" ]; then
            say "no Java $oldest or newer in JAVA_HOME or PATH: installing $package with apt-get"
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2
            return
        fi
    done
    say "apt-get offers neither openjdk-17-jre-headless nor a newer one"
    return 1
}

command_for_this_system() {
    if [ "$(uname -s)" = Darwin ]; then
        printf 'brew install openjdk@17 && export JAVA_HOME="$(brew --prefix openjdk@17)/libexec/openjdk.jdk/Contents/Home"'
    elif command -v apt-get >/dev/null 2>&1; then
        printf 'sudo apt-get update && sudo apt-get install -y --no-install-recommends openjdk-17-jre-headless'
    elif command -v dnf >/dev/null 2>&1; then
        printf 'sudo dnf install -y java-17-openjdk-headless'
    elif command -v pacman >/dev/null 2>&1; then
        printf 'sudo pacman -S jre17-openjdk-headless'
    elif command -v zypper >/dev/null 2>&1; then
        printf 'sudo zypper install -y java-17-openjdk-headless'
    elif command -v apk >/dev/null 2>&1; then
        printf 'sudo apk add openjdk17-jre-headless'
    else
        printf 'export JAVA_HOME=/path/to/a/java-17-or-newer'
    fi
}

if find_java; then exit 0; fi
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ]; then
    install_with_apt && { find_java || find_installed; } && exit 0
fi
say "Spark needs Java $oldest or newer, and neither JAVA_HOME nor PATH has it. Run:"
say "  $(command_for_this_system)"
say "and then make again"
exit 1
