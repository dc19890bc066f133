/* NVML's C interface without a GPU: what the real pynvml calls for our readings, answered by a scenario file.
 *
 * $NVML_SCENARIO names the file; it is read at every call, so a test may replace it (rename) while the library is in use.
 * A line is `[@SECONDS] KEY ...`; one with `@` counts from so long after the library was initialised. Later lines win.
 *
 *   gpus N                 how many there are                  init_error CODE    what nvmlInit says
 *   cuda N                 the newest CUDA of the driver: 12080 is 12.8
 *   model WORD             the second word of every GPU's name, in place of GPU
 *   set GPU NAME VALUE     total, free, reserved, gpu, memory, temperature, slowdown, reasons, power, limit, ecc;
 *                          -CODE answers with that error       lost GPU           it fell off the bus
 *   process GPU PID BYTES  xid GPU CODE (told once)            hang FUNCTION      its calls return when the line is gone
 *   unsupported FUNCTION   old                                 without NVML's newer functions
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10, LOST = 15,
       MISMATCH = 25 };
enum { MOST_GPUS = 16, MOST_PROCESSES = 64, LINE = 256 };

typedef struct { int index; } device_t;
typedef struct { unsigned long long total, free, used; } memory_v1_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process_t;
typedef struct { device_t *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } event_t;

static device_t devices[MOST_GPUS];
static double began;
static int initialised, xids_told, event_set;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* The next line that counts already, without its `@`; 0 at the end. */
static int next_line(FILE *file, char *line) {
    char raw[LINE];
    while (fgets(raw, sizeof raw, file)) {
        char *text = raw;
        if (*text == '@') {
            double at = strtod(text + 1, &text);
            if (now() - began < at) continue;
            while (*text == ' ') text++;
        }
        text[strcspn(text, "\n#")] = 0;
        strcpy(line, text);
        return 1;
    }
    return 0;
}

static FILE *scenario(void) {
    const char *path = getenv("NVML_SCENARIO");
    return path ? fopen(path, "r") : NULL;
}

/* How often a line has this key and, with `word`, this first word. */
static int has(const char *key, const char *word) {
    char line[LINE], a[LINE], b[LINE];
    int found = 0;
    FILE *file = scenario();
    while (file && next_line(file, line)) {
        int n = sscanf(line, "%s %s", a, b);
        if (n >= 1 && !strcmp(a, key) && (!word || (n == 2 && !strcmp(b, word)))) found++;
    }
    if (file) fclose(file);
    return found;
}

static long long number(const char *key, long long otherwise) {
    char line[LINE], a[LINE];
    long long value, found = otherwise;
    FILE *file = scenario();
    while (file && next_line(file, line))
        if (sscanf(line, "%s %lld", a, &value) == 2 && !strcmp(a, key)) found = value;
    if (file) fclose(file);
    return found;
}

/* A GPU's value; 0, or the error that it answers with. */
static int value_of(int gpu, const char *name, unsigned long long otherwise, unsigned long long *out) {
    char line[LINE], a[LINE], b[LINE];
    int index, code = OK;
    long long value;
    FILE *file = scenario();
    *out = otherwise;
    while (file && next_line(file, line))
        if (sscanf(line, "%s %d %s %lld", a, &index, b, &value) == 4 && !strcmp(a, "set") && index == gpu && !strcmp(b, name)) {
            code = value < 0 ? (int)-value : OK;
            *out = value < 0 ? 0 : (unsigned long long)value;
        }
    if (file) fclose(file);
    return code;
}

/* What every call begins with. */
static int begin(const char *function) {
    while (has("hang", function)) usleep(20000);
    if (has("unsupported", function)) return NOT_SUPPORTED;
    return initialised ? OK : UNINITIALIZED;
}

static int begin_device(const char *function, device_t *device) {
    char index[16];
    int code = begin(function);
    if (code) return code;
    if (device < devices || device >= devices + MOST_GPUS) return INVALID;
    snprintf(index, sizeof index, "%d", device->index);
    return has("lost", index) ? LOST : OK;
}

static int figure(const char *function, device_t *device, const char *name, unsigned long long otherwise, unsigned *out) {
    unsigned long long value;
    int code = begin_device(function, device);
    if (!code) code = value_of(device->index, name, otherwise, &value);
    if (!code) *out = (unsigned)value;
    return code;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    began = began ? began : now();
    while (has("hang", "nvmlInitWithFlags")) usleep(20000);
    int code = (int)number("init_error", 0);
    if (!code) initialised = 1;
    return code;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { initialised = xids_told = 0; began = 0; return OK; }

const char *nvmlErrorString(int code) {
    static char text[40];
    switch (code) {
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 18: return "RM has detected an NVML/RM version mismatch.";
    default: snprintf(text, sizeof text, "simulated error %d", code); return text;
    }
}

int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    int code = begin("nvmlSystemGetDriverVersion");
    if (!code) snprintf(text, length, "570.00.01");
    return code;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    int code = begin("nvmlSystemGetCudaDriverVersion_v2");
    if (!code) *version = (int)number("cuda", 12080);
    return code;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    int code = begin("nvmlDeviceGetCount_v2");
    if (!code) *count = (unsigned)number("gpus", 0);
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **device) {
    int code = begin("nvmlDeviceGetHandleByIndex_v2");
    if (code) return code;
    if (index >= MOST_GPUS || index >= (unsigned)number("gpus", 0)) return INVALID;
    devices[index].index = (int)index;
    *device = &devices[index];
    return OK;
}

int nvmlDeviceGetName(device_t *device, char *text, unsigned length) {
    int code = begin_device("nvmlDeviceGetName", device);
    char line[LINE], word[LINE], model[LINE] = "GPU";
    FILE *file = scenario();
    while (file && next_line(file, line))
        if (sscanf(line, "model %s", word) == 1) strcpy(model, word);
    if (file) fclose(file);
    if (!code) snprintf(text, length, "Simulated %s", model);
    return code;
}

int nvmlDeviceGetUUID(device_t *device, char *text, unsigned length) {
    int code = begin_device("nvmlDeviceGetUUID", device);
    if (!code) snprintf(text, length, "GPU-00000000-0000-0000-0000-%012d", device->index);
    return code;
}

static int memory(const char *function, device_t *device, memory_v2_t *out) {
    int code = begin_device(function, device);
    if (!code) code = value_of(device->index, "total", 81559ULL << 20, &out->total);
    if (!code) code = value_of(device->index, "reserved", 0, &out->reserved);
    if (!code) code = value_of(device->index, "free", out->total - out->reserved, &out->free);
    if (!code) out->used = out->total - out->reserved - out->free;
    return code;
}

int nvmlDeviceGetMemoryInfo_v2(device_t *device, memory_v2_t *out) {
    if (has("old", NULL)) return MISMATCH;
    return out->version == 0x02000028 ? memory("nvmlDeviceGetMemoryInfo_v2", device, out) : MISMATCH;
}

int nvmlDeviceGetMemoryInfo(device_t *device, memory_v1_t *out) {
    memory_v2_t all;
    int code = memory("nvmlDeviceGetMemoryInfo", device, &all);
    if (!code) *out = (memory_v1_t){all.total, all.free, all.total - all.free};
    return code;
}

int nvmlDeviceGetUtilizationRates(device_t *device, utilization_t *out) {
    int code = figure("nvmlDeviceGetUtilizationRates", device, "gpu", 0, &out->gpu);
    return code ? code : figure("nvmlDeviceGetUtilizationRates", device, "memory", 0, &out->memory);
}

int nvmlDeviceGetTemperature(device_t *device, unsigned sensor, unsigned *out) {
    return sensor ? INVALID : figure("nvmlDeviceGetTemperature", device, "temperature", 50, out);
}

int nvmlDeviceGetTemperatureThreshold(device_t *device, unsigned threshold, unsigned *out) {
    return threshold == 1 ? figure("nvmlDeviceGetTemperatureThreshold", device, "slowdown", 90, out) : NOT_SUPPORTED;
}

static int reasons(const char *function, device_t *device, unsigned long long *out) {
    int code = begin_device(function, device);
    return code ? code : value_of(device->index, "reasons", 0, out);
}

int nvmlDeviceGetCurrentClocksEventReasons(device_t *device, unsigned long long *out) {
    if (has("old", NULL)) return NOT_SUPPORTED;
    return reasons("nvmlDeviceGetCurrentClocksEventReasons", device, out);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(device_t *device, unsigned long long *out) {
    return reasons("nvmlDeviceGetCurrentClocksThrottleReasons", device, out);
}

int nvmlDeviceGetPowerUsage(device_t *device, unsigned *out) {
    return figure("nvmlDeviceGetPowerUsage", device, "power", 60000, out);
}

int nvmlDeviceGetEnforcedPowerLimit(device_t *device, unsigned *out) {
    return figure("nvmlDeviceGetEnforcedPowerLimit", device, "limit", 400000, out);
}

int nvmlDeviceGetTotalEccErrors(device_t *device, unsigned type, unsigned counter, unsigned long long *out) {
    int code = begin_device("nvmlDeviceGetTotalEccErrors", device);
    if (code) return code;
    return type == 1 && counter == 0 ? value_of(device->index, "ecc", 0, out) : INVALID;
}

int nvmlDeviceGetComputeRunningProcesses_v3(device_t *device, unsigned *count, process_t *out) {
    char line[LINE], a[LINE];
    int index, found = 0, code = begin_device("nvmlDeviceGetComputeRunningProcesses_v3", device);
    process_t seen[MOST_PROCESSES] = {{0}};
    unsigned pid;
    unsigned long long used;
    if (code) return code;
    FILE *file = scenario();
    while (file && next_line(file, line) && found < MOST_PROCESSES)
        if (sscanf(line, "%s %d %u %llu", a, &index, &pid, &used) == 4 && !strcmp(a, "process") && index == device->index)
            seen[found++] = (process_t){pid, used, ~0U, ~0U};
    if (file) fclose(file);
    unsigned room = *count;
    *count = (unsigned)found;
    if (found && (!out || room < (unsigned)found)) return TOO_SMALL;
    if (out) memcpy(out, seen, sizeof *out * (size_t)found);
    return OK;
}

int nvmlEventSetCreate(void **set) {
    *set = &event_set;
    return begin("nvmlEventSetCreate");
}
int nvmlEventSetFree(void *set) { return set == &event_set ? OK : INVALID; }

int nvmlDeviceRegisterEvents(device_t *device, unsigned long long types, void *set) {
    int code = begin_device("nvmlDeviceRegisterEvents", device);
    return code ? code : types == 8 && set == &event_set ? OK : INVALID;
}

int nvmlEventSetWait_v2(void *set, event_t *out, unsigned timeout_ms) {
    char line[LINE], a[LINE];
    int index, nth = 0, code = begin("nvmlEventSetWait_v2");
    unsigned long long xid;
    if (code) return code;
    if (set != &event_set) return INVALID;
    FILE *file = scenario();
    while (file && next_line(file, line))
        if (sscanf(line, "%s %d %llu", a, &index, &xid) == 3 && !strcmp(a, "xid") && ++nth > xids_told) {
            xids_told = nth;
            *out = (event_t){&devices[index], 8, xid, ~0U, ~0U};
            fclose(file);
            return OK;
        }
    if (file) fclose(file);
    usleep(1000 * timeout_ms);
    return TIMEOUT;
}
