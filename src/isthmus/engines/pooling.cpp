// A convolution, ReLU and 2 x 2 max pooling in one pass, and its gradient.
//
// Nothing between the image and the pooled result is written to memory, and the gradient passes only
// through the one place of four that was the largest: a quarter of what a convolution's takes.
// Images are [n][height][width][channels], weights [out][side][side][channels].

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr int WIDE = 16;           // floats that are handled at once
constexpr uint8_t NOWHERE = 4;     // no gradient: the largest of four is not above zero

template <int V> struct Lanes {
    typedef float Floats __attribute__((vector_size(4 * V), aligned(4), may_alias));
    typedef int32_t Ints __attribute__((vector_size(4 * V), aligned(4), may_alias));
};
using Row = Lanes<WIDE>::Floats;

struct Shape {
    int64_t images, channels, height, width, out, side, padding;

    int64_t row() const { return (width + 2 * padding) * channels; }  // of a padded image
    int64_t area() const { return (height + 2 * padding) * row(); }
    int64_t window() const { return side * channels; }  // of one row
    int64_t tall() const { return (height + 2 * padding - side + 1) / 2; }
    int64_t broad() const { return (width + 2 * padding - side + 1) / 2; }
    int64_t pooled() const { return tall() * broad() * out; }
};

int64_t round_up(int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; }

// Copies an image into a frame of zeros, with some behind it that whole vectors may read.
void frame(const Shape &s, const float *image, float *framed) {
    const int64_t length = s.width * s.channels;
    for (int64_t y = 0; y < s.height; y++)
        memcpy(framed + (y + s.padding) * s.row() + s.padding * s.channels, image + y * length,
               length * sizeof(float));
}

// Computes 2 x 2 PLACES neighbouring places of V channels, and pools them.
template <int V, int PLACES>
void pool(const Shape &s, const float *corner, const float *weights, const float *bias,
          int64_t stride, int64_t channels, float *result, uint8_t *chosen) {
    using Floats = typename Lanes<V>::Floats;
    using Ints = typename Lanes<V>::Ints;
    constexpr int COLUMNS = 2 * PLACES;
    Floats sums[2][COLUMNS];
    for (auto &line : sums)
        for (auto &sum : line) sum = *(const Floats *)bias;
    for (int64_t y = 0; y < s.side; y++) {
        const float *above = corner + y * s.row(), *below = above + s.row();
        for (int64_t k = 0; k < s.window(); k++, weights += stride) {
            const Floats weight = *(const Floats *)weights;
            for (int x = 0; x < COLUMNS; x++) {
                sums[0][x] += weight * above[x * s.channels + k];
                sums[1][x] += weight * below[x * s.channels + k];
            }
        }
    }
    for (int place = 0; place < PLACES; place++) {
        Floats most = sums[0][2 * place];
        Ints where = {};
        for (int other = 1; other < 4; other++) {
            const Floats rival = sums[other / 2][2 * place + other % 2];
            const Ints wins = (rival > most) | (rival != rival);  // what is no number stays none
            most = wins ? rival : most;
            where = wins ? Ints{} + other : where;
        }
        const Ints dead = most <= 0.0f;
        most = dead ? Floats{} : most;
        where = dead ? Ints{} + NOWHERE : where;
        for (int64_t o = 0; o < channels; o++) {
            result[place * s.out + o] = most[o];
            chosen[place * s.out + o] = where[o];
        }
    }
}

template <int V>
void forward(const Shape &s, const float *images, const float *weights, const float *bias,
             float *results, uint8_t *chosen) {
    const int64_t stride = round_up(s.out, V), rows = s.side * s.window();
    std::vector<float> packed(rows * stride), biases(stride), framed(s.area() + WIDE);
    for (int64_t o = 0; o < s.out; o++) {
        biases[o] = bias[o];
        for (int64_t k = 0; k < rows; k++) packed[k * stride + o] = weights[o * rows + k];
    }
    for (int64_t n = 0; n < s.images; n++) {
        frame(s, images + n * s.height * s.width * s.channels, framed.data());
        for (int64_t o = 0; o < s.out; o += V)
            for (int64_t y = 0; y < s.tall(); y++)
                for (int64_t x = 0; x < s.broad();) {
                    const float *corner = framed.data() + 2 * y * s.row() + 2 * x * s.channels;
                    const int64_t place = ((n * s.tall() + y) * s.broad() + x) * s.out + o;
                    const int64_t channels = std::min<int64_t>(V, s.out - o);
                    const bool two = x + 1 < s.broad();
                    (two ? pool<V, 2> : pool<V, 1>)(s, corner, packed.data() + o, biases.data() + o,
                                                    stride, channels, results + place,
                                                    chosen + place);
                    x += two ? 2 : 1;
                }
    }
}

// The places of one image and channel through which gradients pass.
struct Passed {
    std::vector<int64_t> corners;
    std::vector<float> gradients;
};

template <int COUNT>
void add_windows(const float *image, const Passed &passed, const int64_t *lines, float *sums) {
    Row totals[COUNT];
    for (int b = 0; b < COUNT; b++) totals[b] = ((const Row *)sums)[b];
    for (size_t e = 0; e < passed.corners.size(); e++) {
        const float *corner = image + passed.corners[e], gradient = passed.gradients[e];
        for (int b = 0; b < COUNT; b++) totals[b] += gradient * *(const Row *)(corner + lines[b]);
    }
    for (int b = 0; b < COUNT; b++) ((Row *)sums)[b] = totals[b];
}

template <int COUNT>
void spread_weights(float *image, const Passed &passed, const int64_t *lines, const float *weights) {
    Row rows[COUNT];
    for (int b = 0; b < COUNT; b++) rows[b] = ((const Row *)weights)[b];
    for (size_t e = 0; e < passed.corners.size(); e++) {
        float *corner = image + passed.corners[e];
        const float gradient = passed.gradients[e];
        for (int b = 0; b < COUNT; b++) *(Row *)(corner + lines[b]) += gradient * rows[b];
    }
}

}  // namespace

extern "C" void pool_convolution(const int64_t *shape, const float *images, const float *weights,
                               const float *bias, float *results, uint8_t *chosen) {
    const Shape s = {shape[0], shape[1], shape[2], shape[3], shape[4], shape[5], shape[6]};
    (s.out <= 8 ? forward<8> : forward<16>)(s, images, weights, bias, results, chosen);
}

extern "C" void differentiate_pool(const int64_t *shape, const float *images, const float *weights,
                                const float *gradients, const uint8_t *chosen, float *of_weights,
                                float *of_bias, float *of_images) {
    const Shape s = {shape[0], shape[1], shape[2], shape[3], shape[4], shape[5], shape[6]};
    const int64_t filled = round_up(s.window(), WIDE), per_line = filled / WIDE;
    const int64_t count = s.side * per_line, length = s.width * s.channels;
    std::vector<float> packed(s.out * s.side * filled), sums(packed.size());
    std::vector<float> framed(s.area() + filled), spread(s.area() + filled);
    std::vector<int64_t> lines(count);
    for (int64_t b = 0; b < count; b++) lines[b] = b / per_line * s.row() + b % per_line * WIDE;
    for (int64_t o = 0; o < s.out * s.side; o++)
        memcpy(&packed[o * filled], weights + o * s.window(), s.window() * sizeof(float));
    std::fill(of_bias, of_bias + s.out, 0.0f);
    Passed passed;
    for (int64_t n = 0; n < s.images; n++) {
        frame(s, images + n * s.height * length, framed.data());
        if (of_images) std::fill(spread.begin(), spread.end(), 0.0f);
        for (int64_t o = 0; o < s.out; o++) {
            passed.corners.clear();
            passed.gradients.clear();
            float total = 0;
            for (int64_t y = 0, place = n * s.pooled() + o; y < s.tall(); y++)
                for (int64_t x = 0; x < s.broad(); x++, place += s.out) {
                    const uint8_t at = chosen[place];
                    if (at == NOWHERE) continue;
                    passed.corners.push_back((2 * y + at / 2) * s.row() +
                                             (2 * x + at % 2) * s.channels);
                    passed.gradients.push_back(gradients[place]);
                    total += gradients[place];
                }
            of_bias[o] += total;
            float *sum = &sums[o * count * WIDE], *row = &packed[o * count * WIDE];
            int64_t b = 0;
            for (; b + 8 <= count; b += 8) add_windows<8>(framed.data(), passed, &lines[b], sum + b * WIDE);
            for (; b + 4 <= count; b += 4) add_windows<4>(framed.data(), passed, &lines[b], sum + b * WIDE);
            for (; b < count; b++) add_windows<1>(framed.data(), passed, &lines[b], sum + b * WIDE);
            if (!of_images) continue;
            for (b = 0; b + 8 <= count; b += 8) spread_weights<8>(spread.data(), passed, &lines[b], row + b * WIDE);
            for (; b + 4 <= count; b += 4) spread_weights<4>(spread.data(), passed, &lines[b], row + b * WIDE);
            for (; b < count; b++) spread_weights<1>(spread.data(), passed, &lines[b], row + b * WIDE);
        }
        if (!of_images) continue;
        for (int64_t y = 0; y < s.height; y++)
            memcpy(of_images + (n * s.height + y) * length,
                   &spread[(y + s.padding) * s.row() + s.padding * s.channels],
                   length * sizeof(float));
    }
    for (int64_t o = 0; o < s.out * s.side; o++)
        memcpy(of_weights + o * s.window(), &sums[o * filled], s.window() * sizeof(float));
}
