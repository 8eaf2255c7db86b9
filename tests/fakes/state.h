/* What the fakes of vendor libraries share: values and faults from a text file, read again whenever it changes.
 *
 * One "key value" a line, '#' starts a comment, a later line wins; keys are WHAT, or BOARD.WHAT with '*' for every board.
 * Faults, per call CALL: BOARD.CALL.ret CODE, .hang_s SECONDS, .crash 1, .print TEXT, .flood BYTES (to stderr).
 * The including file defines STATE_VARIABLE, the name of the environment variable that holds the file's path.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST_LINES 512

static struct {
    char key[80];
    char value[160];
} lines[MOST_LINES];
static int line_count;
static struct stat state_stat;
static struct timespec loaded;

static void load_state(void)
{
    const char *path = getenv(STATE_VARIABLE);
    struct stat now;
    char text[320];
    FILE *file;

    if (!path || stat(path, &now) != 0) {
        line_count = 0;
        return;
    }
    if (now.st_ino == state_stat.st_ino && now.st_mtim.tv_sec == state_stat.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == state_stat.st_mtim.tv_nsec && now.st_size == state_stat.st_size)
        return;
    file = fopen(path, "r");
    if (!file)
        return;
    state_stat = now;
    line_count = 0;
    while (line_count < MOST_LINES && fgets(text, sizeof text, file)) {
        text[strcspn(text, "#\n")] = 0;
        if (sscanf(text, " %79s %159[^\n]", lines[line_count].key, lines[line_count].value) == 2)
            line_count++;
    }
    fclose(file);
}

static const char *find(int board, const char *what)
{
    int i;

    load_state();
    for (i = line_count - 1; i >= 0; i--) {
        const char *key = lines[i].key;
        const char *dot = strchr(key, '.');
        if (!dot) {
            if (board < 0 && !strcmp(key, what))
                return lines[i].value;
        } else if (!strcmp(dot + 1, what) && (key[0] == '*' || atoi(key) == board)) {
            return lines[i].value;
        }
    }
    return NULL;
}

static unsigned long long number(int board, const char *what, unsigned long long otherwise)
{
    const char *text = find(board, what);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

static const char *fault_text(int board, const char *call, const char *fault)
{
    char what[96];
    snprintf(what, sizeof what, "%s.%s", call, fault);
    return find(board, what);
}

/* Whatever the state wants to go wrong in this call; its return code, 0 for none. */
static int trouble(int board, const char *call)
{
    const char *text;
    long bytes;

    if ((text = fault_text(board, call, "print"))) {
        printf("%s\n", text);
        fflush(stdout);
    }
    if ((text = fault_text(board, call, "flood")))
        for (bytes = atol(text); bytes > 0; bytes -= 64)
            fputs("driver: noise noise noise noise noise noise noise noise noise n\n", stderr);
    if ((text = fault_text(board, call, "hang_s"))) {
        struct timespec left = {atol(text), 0};
        while (nanosleep(&left, &left) != 0)
            ;
    }
    if (fault_text(board, call, "crash"))
        *(volatile int *)8 = 1;
    text = fault_text(board, call, "ret");
    return text ? atoi(text) : 0;
}

/* Seconds since the library was first asked. */
__attribute__((unused)) static double uptime_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!loaded.tv_sec && !loaded.tv_nsec)
        loaded = now;
    return (double)(now.tv_sec - loaded.tv_sec) + 1e-9 * (double)(now.tv_nsec - loaded.tv_nsec);
}
