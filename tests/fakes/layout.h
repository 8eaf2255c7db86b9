/* Sizes and offsets of a fake's structures, handed out for the test that holds them against the probe's ctypes.
 *
 * The including file ends with: LAYOUT(SIZE(struct_t), AT(struct_t, member), ...)
 */
#include <stddef.h>

#define SIZE(type) {#type, sizeof(type)}
#define AT(type, member) {#type "." #member, offsetof(type, member)}

#define LAYOUT(...)                                                                                                       \
    static const struct {                                                                                                 \
        const char *name;                                                                                                 \
        unsigned long value;                                                                                              \
    } layout[] = {__VA_ARGS__};                                                                                           \
                                                                                                                          \
    const char *fake_layout_name(int index)                                                                               \
    {                                                                                                                     \
        return index < (int)(sizeof layout / sizeof layout[0]) ? layout[index].name : NULL;                               \
    }                                                                                                                     \
                                                                                                                          \
    unsigned long fake_layout_value(int index)                                                                            \
    {                                                                                                                     \
        return layout[index].value;                                                                                       \
    }
