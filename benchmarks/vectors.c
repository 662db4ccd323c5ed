/* What the vector part of a step costs at least: the loops as one would write them by hand.

       cc -O3 -march=native -ffast-math benchmarks/vectors.c -o vectors && ./vectors

   The vectors are TwoNN's; FedAvg's update reads and writes five of them, SuPerFed's eleven, the
   mixture of the next step and the products of its penalty included. Medians, in milliseconds. */

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { P = 199210, TIMES = 1000 };

static float *filled(int seed) {
    float *vector = aligned_alloc(64, (P * sizeof(float) + 63) / 64 * 64);
    for (int i = 0; i < P; i++) vector[i] = 1e-3f * ((i + seed) % 17);
    return vector;
}

static void fedavg(const float *restrict g, float *restrict w, float *restrict v) {
    for (int i = 0; i < P; i++) {
        v[i] = 0.9f * v[i] + g[i] + 1e-4f * w[i];
        w[i] -= 0.01f * v[i];
    }
}

static float superfed(const float *restrict g, const float *restrict wg, float *restrict wf,
                      float *restrict wl, float *restrict vf, float *restrict vl,
                      float *restrict z) {
    float lambda = 0.3f, c = 1e-5f, ff = 0, ll = 0, fl = 0;
    for (int i = 0; i < P; i++) {
        float f = wf[i], l = wl[i];
        vf[i] = 0.9f * vf[i] + (1 - lambda) * g[i] + 1e-4f * f + c * l + 0.02f * (f - wg[i]);
        vl[i] = 0.9f * vl[i] + lambda * g[i] + 1e-4f * l + c * f;
        f -= 0.01f * vf[i];
        l -= 0.01f * vl[i];
        wf[i] = f;
        wl[i] = l;
        z[i] = (1 - lambda) * f + lambda * l;
        ff += f * f;
        ll += l * l;
        fl += f * l;
    }
    return ff + ll + fl;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * t.tv_sec + 1e-6 * t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b);
}

int main(void) {
    float *vectors[7], sum = 0;
    double took[2][TIMES];
    for (int k = 0; k < 7; k++) vectors[k] = filled(k);
    for (int method = 0; method < 2; method++) {
        for (int k = 0; k < TIMES; k++) {
            double began = now();
            if (method == 0)
                fedavg(vectors[0], vectors[2], vectors[4]);
            else
                sum += superfed(vectors[0], vectors[1], vectors[2], vectors[3], vectors[4],
                                vectors[5], vectors[6]);
            took[method][k] = now() - began;
        }
        qsort(took[method], TIMES, sizeof(double), ascending);
    }
    printf("fedavg %.3f, superfed-mm %.3f (%g)\n", took[0][TIMES / 2], took[1][TIMES / 2], sum);
    return 0;
}
