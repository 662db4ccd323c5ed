// A convolution, ReLU and 2 x 2 max pooling in one pass, and their gradient.
//
// Nothing between the image and the pooled result is written to memory, and gradients pass only
// through the one place of four that was the largest: a quarter of the work of a convolution's.
// ReLU may leak: below zero it has a slope. Images are [n][height][width][channels], filters
// [out][side][side][channels], results [n][height / 2][width / 2][out].

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr int WIDE = 16;      // floats that are handled at once
constexpr uint8_t BELOW = 4;  // is added to the place, 0 to 3, of a largest that is not above zero

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
};

int64_t round_up(int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; }

// Copies an image into the middle of a frame of zeros.
void frame(const Shape &s, const float *image, float *framed) {
    const int64_t length = s.width * s.channels;
    for (int64_t y = 0; y < s.height; y++)
        memcpy(framed + (y + s.padding) * s.row() + s.padding * s.channels, image + y * length,
               length * sizeof(float));
}

// Computes V channels of 2 x (2 PLACES) neighbouring places, and pools them.
template <int V, int PLACES>
void pool(const Shape &s, const float *corner, const float *weights, const float *bias,
          float slope, int64_t stride, int64_t channels, float *results, uint8_t *chosen) {
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
        const Ints low = most <= 0.0f;
        most = low ? (slope == 0 ? Floats{} : most * slope) : most;
        where = low ? where + BELOW : where;
        for (int64_t o = 0; o < channels; o++) {
            results[place * s.out + o] = most[o];
            chosen[place * s.out + o] = where[o];
        }
    }
}

template <int V>
void pool_images(const Shape &s, const float *images, const float *weights, const float *bias,
                 float slope, float *results, uint8_t *chosen) {
    const int64_t stride = round_up(s.out, V), rows = s.side * s.window();
    std::vector<float> packed(rows * stride), biases(stride), framed(s.area());
    for (int64_t o = 0; o < s.out; o++) {
        biases[o] = bias[o];
        for (int64_t k = 0; k < rows; k++) packed[k * stride + o] = weights[o * rows + k];
    }
    for (int64_t n = 0; n < s.images; n++) {
        frame(s, images + n * s.height * s.width * s.channels, framed.data());
        for (int64_t o = 0; o < s.out; o += V)
            for (int64_t y = 0; y < s.tall(); y++)
                for (int64_t x = 0; x < s.broad(); x += 2) {
                    const int64_t at = ((n * s.tall() + y) * s.broad() + x) * s.out + o;
                    const bool two = x + 1 < s.broad();
                    (two ? pool<V, 2> : pool<V, 1>)(
                        s, &framed[2 * y * s.row() + 2 * x * s.channels], &packed[o], &biases[o],
                        slope, stride, std::min<int64_t>(V, s.out - o), results + at, chosen + at);
                }
    }
}

// The places of one image and channel through which gradients pass.
struct Passed {
    std::vector<int64_t> corners;  // of their windows
    std::vector<float> gradients;
};

// Lists them, and adds their gradients up.
float list_passed(const Shape &s, const float *gradients, const uint8_t *chosen, float slope,
                  Passed &passed) {
    passed.corners.clear();
    passed.gradients.clear();
    float total = 0;
    for (int64_t y = 0, at = 0; y < s.tall(); y++)
        for (int64_t x = 0; x < s.broad(); x++, at += s.out) {
            const bool low = chosen[at] >= BELOW;
            if (low && slope == 0) continue;
            const int64_t place = chosen[at] % BELOW;
            const float gradient = low ? gradients[at] * slope : gradients[at];
            passed.corners.push_back((2 * y + place / 2) * s.row() +
                                     (2 * x + place % 2) * s.channels);
            passed.gradients.push_back(gradient);
            total += gradient;
        }
    return total;
}

// Adds the windows up, each times its gradient: COUNT pieces of them, which `pieces` tells apart.
template <int COUNT>
void add_windows(const float *image, const Passed &passed, const int64_t *pieces, float *sums) {
    Row totals[COUNT];
    for (int b = 0; b < COUNT; b++) totals[b] = ((const Row *)sums)[b];
    for (size_t e = 0; e < passed.corners.size(); e++) {
        const float *corner = image + passed.corners[e], gradient = passed.gradients[e];
        for (int b = 0; b < COUNT; b++) totals[b] += gradient * *(const Row *)(corner + pieces[b]);
    }
    for (int b = 0; b < COUNT; b++) ((Row *)sums)[b] = totals[b];
}

// Adds a filter, times each gradient, to the windows.
template <int COUNT>
void spread_filter(float *image, const Passed &passed, const int64_t *pieces, const float *filter) {
    Row rows[COUNT];
    for (int b = 0; b < COUNT; b++) rows[b] = ((const Row *)filter)[b];
    for (size_t e = 0; e < passed.corners.size(); e++) {
        float *corner = image + passed.corners[e];
        const float gradient = passed.gradients[e];
        for (int b = 0; b < COUNT; b++) *(Row *)(corner + pieces[b]) += gradient * rows[b];
    }
}

Shape read_shape(const int64_t *given) {
    return {given[0], given[1], given[2], given[3], given[4], given[5], given[6]};
}

}  // namespace

extern "C" void pool_convolution(const int64_t *shape, float slope, const float *images,
                                 const float *weights, const float *bias, float *results,
                                 uint8_t *chosen) {
    const Shape s = read_shape(shape);
    (s.out <= 8 ? pool_images<8> : pool_images<16>)(s, images, weights, bias, slope, results,
                                                    chosen);
}

// `of_images` may be null: then nobody wants the gradient of the images.
extern "C" void differentiate_pool(const int64_t *shape, float slope, const float *images,
                                   const float *weights, const float *gradients,
                                   const uint8_t *chosen, float *of_weights, float *of_bias,
                                   float *of_images) {
    const Shape s = read_shape(shape);
    const int64_t filled = round_up(s.window(), WIDE), per_row = filled / WIDE;
    const int64_t count = s.side * per_row, length = s.width * s.channels;
    // Behind rows of filters there are zeros, so that whole vectors may be read, and behind images
    // there is room for them.
    std::vector<float> filters(s.out * s.side * filled), sums(filters.size());
    std::vector<float> framed(s.area() + filled), spread(s.area() + filled);
    std::vector<int64_t> pieces(count);
    for (int64_t b = 0; b < count; b++) pieces[b] = b / per_row * s.row() + b % per_row * WIDE;
    for (int64_t row = 0; row < s.out * s.side; row++)
        memcpy(&filters[row * filled], weights + row * s.window(), s.window() * sizeof(float));
    std::fill(of_bias, of_bias + s.out, 0.0f);
    Passed passed;
    for (int64_t n = 0; n < s.images; n++) {
        frame(s, images + n * s.height * length, framed.data());
        std::fill(spread.begin(), spread.end(), 0.0f);
        for (int64_t o = 0; o < s.out; o++) {
            const int64_t at = n * s.tall() * s.broad() * s.out + o;
            of_bias[o] += list_passed(s, gradients + at, chosen + at, slope, passed);
            float *sum = &sums[o * count * WIDE], *filter = &filters[o * count * WIDE];
            int64_t b = 0;
            for (; b + 8 <= count; b += 8)
                add_windows<8>(framed.data(), passed, &pieces[b], sum + b * WIDE);
            for (; b + 4 <= count; b += 4)
                add_windows<4>(framed.data(), passed, &pieces[b], sum + b * WIDE);
            for (; b < count; b++)
                add_windows<1>(framed.data(), passed, &pieces[b], sum + b * WIDE);
            if (!of_images) continue;
            for (b = 0; b + 8 <= count; b += 8)
                spread_filter<8>(spread.data(), passed, &pieces[b], filter + b * WIDE);
            for (; b + 4 <= count; b += 4)
                spread_filter<4>(spread.data(), passed, &pieces[b], filter + b * WIDE);
            for (; b < count; b++)
                spread_filter<1>(spread.data(), passed, &pieces[b], filter + b * WIDE);
        }
        for (int64_t y = 0; of_images && y < s.height; y++)
            memcpy(of_images + (n * s.height + y) * length,
                   &spread[(y + s.padding) * s.row() + s.padding * s.channels],
                   length * sizeof(float));
    }
    for (int64_t row = 0; row < s.out * s.side; row++)
        memcpy(of_weights + row * s.window(), &sums[row * filled], s.window() * sizeof(float));
}
