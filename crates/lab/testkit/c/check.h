/* What tests in C begin with: names of the driver's types, and checks. */
#ifndef CHECK_H
#define CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct CUstream_st *stream_t;

struct location { int kind, id; };
struct properties {
    int kind, handles;
    struct location location;
    void *security;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
};
struct access { struct location location; int flags; };

#define MIB ((size_t)1 << 20)

/* Ends the program at the first thing that is not as it should be. */
#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);              \
            _exit(1);                                                                            \
        }                                                                                        \
    } while (0)

#define OK(call)                                                                                 \
    do {                                                                                         \
        int code_ = (call);                                                                      \
        if (code_ != 0) {                                                                        \
            fprintf(stderr, "%s:%d: %s is %d\n", __FILE__, __LINE__, #call, code_);              \
            _exit(1);                                                                            \
        }                                                                                        \
    } while (0)

#endif
