// A convolution, ReLU and 2 x 2 max pooling in one pass, and their gradient.
//
// Nothing between the image and the pooled result is written to memory, and gradients pass only
// through the one place of four that was the largest: a quarter of the work of a convolution's.
// ReLU may leak: below zero it has a slope. Images are [n][height][width][channels], filters
// [out][side][side][channels], results [n][height / 2][width / 2][out].

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace {

constexpr int WIDE = 16;      // floats that are handled at once
constexpr int AT_ONCE = 10;   // pieces of a window whose sums are in registers
constexpr uint8_t BELOW = 4;  // is added to the place, 0 to 3, of a largest that is not above zero

template <int V> struct Lanes {
    typedef float Floats __attribute__((vector_size(4 * V), aligned(4), may_alias));
    typedef int32_t Ints __attribute__((vector_size(4 * V), aligned(4), may_alias));
    typedef uint8_t Bytes __attribute__((vector_size(V)));
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
        float *result = results + place * s.out;
        uint8_t *choice = chosen + place * s.out;
        const auto narrow = __builtin_convertvector(where, typename Lanes<V>::Bytes);
        if (channels == V) {
            *(Floats *)result = most;
            memcpy(choice, &narrow, V);
        } else {
            memcpy(result, &most, channels * sizeof(float));
            memcpy(choice, &narrow, channels);
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
                for (int64_t x = 0, places; x < s.broad(); x += places) {
                    const int64_t left = s.broad() - x;
                    places = left == 4 ? 2 : std::min<int64_t>(left, 3);
                    const auto pool_some = places == 3   ? pool<V, 3>
                                           : places == 2 ? pool<V, 2>
                                                         : pool<V, 1>;
                    const int64_t at = ((n * s.tall() + y) * s.broad() + x) * s.out + o;
                    pool_some(s, &framed[2 * y * s.row() + 2 * x * s.channels], &packed[o],
                              &biases[o], slope, stride, std::min<int64_t>(V, s.out - o),
                              results + at, chosen + at);
                }
    }
}

// The windows, of one image, through whose places gradients pass.
struct Passed {
    std::vector<int64_t> corners;  // where each window begins
    std::vector<float> gradients;
    int64_t count;

    explicit Passed(int64_t most) : corners(most), gradients(most), count(0) {}
};

// Lists those of one filter, and adds their gradients up. Nothing is jumped over, since nobody can
// tell beforehand which places pass: what does not is written over by the next.
float list_windows(const Shape &s, const float *gradients, const uint8_t *chosen, float slope,
                   Passed &passed) {
    const int64_t steps[4] = {0, s.channels, s.row(), s.row() + s.channels};
    int64_t count = 0;
    float total = 0;
    for (int64_t y = 0, at = 0; y < s.tall(); y++)
        for (int64_t x = 0; x < s.broad(); x++, at += s.out) {
            const bool low = chosen[at] >= BELOW, passes = !low || slope != 0;
            const float gradient = low ? gradients[at] * slope : gradients[at];
            passed.corners[count] = 2 * (y * s.row() + x * s.channels) + steps[chosen[at] % BELOW];
            passed.gradients[count] = gradient;
            total += passes ? gradient : 0.0f;
            count += passes;
        }
    passed.count = count;
    return total;
}

// The filters, of one image, that chose a place: those of all places one after another.
struct Choices {
    std::vector<int64_t> filters;  // where each filter begins
    std::vector<float> gradients;
    std::vector<int64_t> corners, ends;  // of each place that somebody chose

    explicit Choices(int64_t most) : filters(most), gradients(most) {}
};

// Lists them; a filter has `length` numbers.
void list_choices(const Shape &s, const float *gradients, const uint8_t *chosen, float slope,
                  int64_t length, Choices &choices) {
    const int64_t steps[4] = {0, s.channels, s.row(), s.row() + s.channels};
    std::vector<int64_t> who(4 * s.out);
    int64_t count = 0;
    choices.corners.clear();
    choices.ends.clear();
    for (int64_t y = 0; y < s.tall(); y++)
        for (int64_t x = 0; x < s.broad(); x++, gradients += s.out, chosen += s.out) {
            int64_t counts[4] = {};
            for (int64_t o = 0; o < s.out; o++) {
                const int64_t place = chosen[o] % BELOW;
                who[place * s.out + counts[place]] = o;
                counts[place] += chosen[o] < BELOW || slope != 0;
            }
            for (int place = 0; place < 4; place++) {
                if (!counts[place]) continue;
                for (int64_t i = 0; i < counts[place]; i++, count++) {
                    const int64_t o = who[place * s.out + i];
                    const bool low = chosen[o] >= BELOW;
                    choices.filters[count] = o * length;
                    choices.gradients[count] = low ? gradients[o] * slope : gradients[o];
                }
                choices.corners.push_back(2 * (y * s.row() + x * s.channels) + steps[place]);
                choices.ends.push_back(count);
            }
        }
}

// Adds the windows up, each times its gradient: COUNT pieces of them, which `pieces` tells apart.
template <int COUNT>
void add_windows(const float *image, const Passed &passed, const int64_t *pieces, float *sums) {
    Row totals[COUNT];
    for (int b = 0; b < COUNT; b++) totals[b] = ((const Row *)sums)[b];
    for (int64_t e = 0; e < passed.count; e++) {
        const float *corner = image + passed.corners[e], gradient = passed.gradients[e];
        for (int b = 0; b < COUNT; b++) totals[b] += gradient * *(const Row *)(corner + pieces[b]);
    }
    for (int b = 0; b < COUNT; b++) ((Row *)sums)[b] = totals[b];
}

// Adds to each window the filters that chose its place, times their gradients: COUNT pieces. They
// may overlap where a row ends, behind the window: there a later piece has the true sum.
template <int COUNT>
void spread_filters(float *image, const Choices &choices, const int64_t *pieces,
                    const float *filters) {
    for (size_t place = 0, e = 0; place < choices.corners.size(); place++) {
        float *corner = image + choices.corners[place];
        Row totals[COUNT];
        for (int b = 0; b < COUNT; b++) totals[b] = *(const Row *)(corner + pieces[b]);
        for (; e < size_t(choices.ends[place]); e++) {
            const Row *filter = (const Row *)(filters + choices.filters[e]);
            const float gradient = choices.gradients[e];
            for (int b = 0; b < COUNT; b++) totals[b] += gradient * filter[b];
        }
        for (int b = 0; b < COUNT; b++) *(Row *)(corner + pieces[b]) = totals[b];
    }
}

// Calls `some` with a number that it gets as a constant.
template <int NUMBER, typename Some> void call(int64_t number, int64_t first, Some some) {
    if constexpr (NUMBER > 1)
        if (number < NUMBER) return call<NUMBER - 1>(number, first, some);
    some(std::integral_constant<int, NUMBER>(), first);
}

// Cuts `count` pieces into parts of about equal numbers, at most AT_ONCE, and calls `some` with each
// part's number and first piece.
template <typename Some> void split(int64_t count, Some some) {
    for (int64_t first = 0, parts = (count + AT_ONCE - 1) / AT_ONCE; parts > 0; parts--) {
        const int64_t number = (count - first + parts - 1) / parts;
        call<AT_ONCE>(number, first, some);
        first += number;
    }
}

// Numbers, at first zero, that begin where a line of the cache does.
class Numbers {
    std::vector<float> memory;

  public:
    float *const start;

    explicit Numbers(int64_t size)
        : memory(size + WIDE),
          start((float *)round_up((int64_t)memory.data(), WIDE * sizeof(float))) {}
    Numbers(const Numbers &) = delete;
};

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
    Numbers filters(s.out * count * WIDE), sums(s.out * count * WIDE);
    Numbers framed(s.area() + filled), spread(s.area() + filled);
    std::vector<int64_t> pieces(count);
    for (int64_t b = 0; b < count; b++) pieces[b] = b / per_row * s.row() + b % per_row * WIDE;
    for (int64_t row = 0; row < s.out * s.side; row++)
        memcpy(filters.start + row * filled, weights + row * s.window(),
               s.window() * sizeof(float));
    std::fill(of_bias, of_bias + s.out, 0.0f);
    const int64_t places = s.tall() * s.broad();
    Passed passed(places);
    Choices choices(places * s.out);
    for (int64_t n = 0; n < s.images; n++, gradients += places * s.out, chosen += places * s.out) {
        frame(s, images + n * s.height * length, framed.start);
        for (int64_t o = 0; o < s.out; o++) {
            of_bias[o] += list_windows(s, gradients + o, chosen + o, slope, passed);
            split(count, [&](auto some, int64_t b) {
                add_windows<some>(framed.start, passed, &pieces[b],
                                  sums.start + (o * count + b) * WIDE);
            });
        }
        if (!of_images) continue;
        std::fill(spread.start, spread.start + s.area(), 0.0f);
        list_choices(s, gradients, chosen, slope, count * WIDE, choices);
        split(count, [&](auto some, int64_t b) {
            spread_filters<some>(spread.start, choices, &pieces[b], filters.start + b * WIDE);
        });
        for (int64_t y = 0; y < s.height; y++)
            memcpy(of_images + (n * s.height + y) * length,
                   spread.start + (y + s.padding) * s.row() + s.padding * s.channels,
                   length * sizeof(float));
    }
    for (int64_t row = 0; row < s.out * s.side; row++)
        memcpy(of_weights + row * s.window(), sums.start + row * filled,
               s.window() * sizeof(float));
}
