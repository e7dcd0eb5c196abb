%(complete_func)s() {
    local -; set -f
    local IFS=$'\n' line="${COMP_LINE:0:COMP_POINT}" completion
    local word="${line##*[[:space:]]}"
    local before=($(tr -s '[:space:]' '\n' <<< "${line%%"$word"}"))
    local kept="${word%%"$2"}"
    for completion in $(env COMP_WORDS="$line" COMP_CWORD=${#before[@]} \
            %(complete_var)s=bash_complete "$1"); do
        case "$completion" in
            dir,*) compopt -o dirnames ;;
            file,*) compopt -o default ;;
            plain,*) completion="${completion#plain,}"; COMPREPLY+=("${completion#"$kept"}") ;;
        esac
    done
}
complete -o nosort -F %(complete_func)s %(prog_name)s
