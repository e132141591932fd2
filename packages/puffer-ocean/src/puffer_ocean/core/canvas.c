#include "canvas.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* Rows of a 5x7 letter from top to bottom; bit 4 is the leftmost pixel. ASCII 32 (space) to 95 (underscore). */
static const uint8_t FONT[64][7] = {
    {0, 0, 0, 0, 0, 0, 0},        /* space */
    {4, 4, 4, 4, 4, 0, 4},        /* ! */
    {10, 10, 0, 0, 0, 0, 0},      /* " */
    {10, 31, 10, 10, 10, 31, 10}, /* # */
    {4, 15, 20, 14, 5, 30, 4},    /* $ */
    {25, 26, 2, 4, 8, 11, 19},    /* % */
    {8, 20, 8, 20, 21, 18, 13},   /* & */
    {4, 4, 0, 0, 0, 0, 0},        /* ' */
    {2, 4, 8, 8, 8, 4, 2},        /* ( */
    {8, 4, 2, 2, 2, 4, 8},        /* ) */
    {0, 21, 14, 31, 14, 21, 0},   /* * */
    {0, 4, 4, 31, 4, 4, 0},       /* + */
    {0, 0, 0, 0, 0, 4, 8},        /* , */
    {0, 0, 0, 31, 0, 0, 0},       /* - */
    {0, 0, 0, 0, 0, 0, 4},        /* . */
    {1, 1, 2, 4, 8, 16, 16},      /* / */
    {14, 17, 17, 21, 17, 17, 14}, /* 0 */
    {4, 12, 20, 4, 4, 4, 31},     /* 1 */
    {14, 17, 1, 6, 8, 16, 31},    /* 2 */
    {30, 1, 1, 14, 1, 1, 30},     /* 3 */
    {17, 17, 17, 31, 1, 1, 1},    /* 4 */
    {31, 16, 30, 1, 1, 17, 14},   /* 5 */
    {14, 16, 16, 30, 17, 17, 14}, /* 6 */
    {31, 1, 2, 2, 4, 4, 4},       /* 7 */
    {14, 17, 17, 14, 17, 17, 14}, /* 8 */
    {14, 17, 17, 15, 1, 1, 14},   /* 9 */
    {0, 4, 0, 0, 0, 4, 0},        /* : */
    {0, 4, 0, 0, 0, 4, 8},        /* ; */
    {1, 2, 4, 8, 4, 2, 1},        /* < */
    {0, 0, 31, 0, 31, 0, 0},      /* = */
    {16, 8, 4, 2, 4, 8, 16},      /* > */
    {14, 17, 1, 6, 4, 0, 4},      /* ? */
    {14, 17, 23, 21, 23, 16, 14}, /* @ */
    {4, 10, 17, 17, 31, 17, 17},  /* A */
    {30, 17, 17, 30, 17, 17, 30}, /* B */
    {15, 16, 16, 16, 16, 16, 15}, /* C */
    {30, 17, 17, 17, 17, 17, 30}, /* D */
    {31, 16, 16, 30, 16, 16, 31}, /* E */
    {31, 16, 16, 30, 16, 16, 16}, /* F */
    {15, 16, 16, 19, 17, 17, 15}, /* G */
    {17, 17, 17, 31, 17, 17, 17}, /* H */
    {14, 4, 4, 4, 4, 4, 14},      /* I */
    {1, 1, 1, 1, 1, 17, 14},      /* J */
    {17, 18, 20, 24, 20, 18, 17}, /* K */
    {16, 16, 16, 16, 16, 16, 31}, /* L */
    {17, 27, 21, 21, 17, 17, 17}, /* M */
    {17, 25, 21, 21, 19, 17, 17}, /* N */
    {14, 17, 17, 17, 17, 17, 14}, /* O */
    {30, 17, 17, 30, 16, 16, 16}, /* P */
    {14, 17, 17, 17, 21, 18, 13}, /* Q */
    {30, 17, 17, 30, 20, 18, 17}, /* R */
    {15, 16, 16, 14, 1, 1, 30},   /* S */
    {31, 4, 4, 4, 4, 4, 4},       /* T */
    {17, 17, 17, 17, 17, 17, 14}, /* U */
    {17, 17, 17, 17, 10, 10, 4},  /* V */
    {17, 17, 17, 21, 21, 27, 17}, /* W */
    {17, 17, 10, 4, 10, 17, 17},  /* X */
    {17, 17, 10, 4, 4, 4, 4},     /* Y */
    {31, 1, 2, 4, 8, 16, 31},     /* Z */
    {14, 8, 8, 8, 8, 8, 14},      /* [ */
    {16, 16, 8, 4, 2, 1, 1},      /* \ */
    {14, 2, 2, 2, 2, 2, 14},      /* ] */
    {4, 10, 17, 0, 0, 0, 0},      /* ^ */
    {0, 0, 0, 0, 0, 0, 31},       /* _ */
};

/* The first pixel whose centre is at or right of (below) `edge`, clipped to 0 .. limit. NaN gives 0. */
static int first_pixel(float edge, int limit) {
    float pixel = ceilf(edge - 0.5f);
    if (pixel >= (float)limit) {
        return limit;
    }
    return pixel > 0 ? (int)pixel : 0;
}

static void put(uint8_t *pixel, uint32_t color) {
    pixel[0] = (uint8_t)(color >> 16);
    pixel[1] = (uint8_t)(color >> 8);
    pixel[2] = (uint8_t)color;
}

static void span(oc_canvas *canvas, int y, float left, float right, uint32_t color) {
    int end = first_pixel(right, canvas->width);
    int x = first_pixel(left, canvas->width);
    uint8_t *pixel = canvas->pixels + 3 * ((ptrdiff_t)y * canvas->width + x);
    for (; x < end; x++, pixel += 3) {
        put(pixel, color);
    }
}

void oc_clear(oc_canvas *canvas, uint32_t color) {
    oc_rect(canvas, 0, 0, (float)canvas->width, (float)canvas->height, color);
}

void oc_rect(oc_canvas *canvas, float x, float y, float width, float height, uint32_t color) {
    int end = first_pixel(y + height, canvas->height);
    for (int row = first_pixel(y, canvas->height); row < end; row++) {
        span(canvas, row, x, x + width, color);
    }
}

void oc_circle(oc_canvas *canvas, float x, float y, float radius, uint32_t color) {
    int end = first_pixel(y + radius, canvas->height);
    for (int row = first_pixel(y - radius, canvas->height); row < end; row++) {
        float dy = (float)row + 0.5f - y;
        float half = sqrtf(fmaxf(0, radius * radius - dy * dy));
        span(canvas, row, x - half, x + half, color);
    }
}

void oc_triangle(oc_canvas *canvas, float x0, float y0, float x1, float y1, float x2, float y2, uint32_t color) {
    const float xs[3] = {x0, x1, x2}, ys[3] = {y0, y1, y2};
    int end = first_pixel(fmaxf(y0, fmaxf(y1, y2)), canvas->height);
    for (int row = first_pixel(fminf(y0, fminf(y1, y2)), canvas->height); row < end; row++) {
        float y = (float)row + 0.5f;
        float left = INFINITY, right = -INFINITY;
        for (int i = 0; i < 3; i++) {
            int j = (i + 1) % 3;
            if ((ys[i] <= y) != (ys[j] <= y)) {
                float x = xs[i] + (y - ys[i]) * (xs[j] - xs[i]) / (ys[j] - ys[i]);
                left = fminf(left, x);
                right = fmaxf(right, x);
            }
        }
        if (left < right) {
            span(canvas, row, left, right, color);
        }
    }
}

void oc_line(oc_canvas *canvas, float x0, float y0, float x1, float y1, float thickness, uint32_t color) {
    float half = thickness / 2;
    float dx = x1 - x0, dy = y1 - y0;
    float length = sqrtf(dx * dx + dy * dy);
    if (length > 0) {
        float nx = -dy / length * half, ny = dx / length * half;
        oc_triangle(canvas, x0 + nx, y0 + ny, x0 - nx, y0 - ny, x1 - nx, y1 - ny, color);
        oc_triangle(canvas, x0 + nx, y0 + ny, x1 + nx, y1 + ny, x1 - nx, y1 - ny, color);
    }
    oc_circle(canvas, x0, y0, half, color);
    oc_circle(canvas, x1, y1, half, color);
}

static void draw_letter(oc_canvas *canvas, int x, int y, int scale, uint32_t color, char letter) {
    if (letter >= 'a' && letter <= 'z') {
        letter = (char)(letter - 'a' + 'A');
    }
    const uint8_t *rows = FONT[letter >= ' ' && letter <= '_' ? letter - ' ' : '?' - ' '];
    for (int row = 0; row < 7; row++) {
        for (int column = 0; column < 5; column++) {
            if (rows[row] >> (4 - column) & 1) {
                float left = (float)(x + column * scale), top = (float)(y + row * scale);
                oc_rect(canvas, left, top, (float)scale, (float)scale, color);
            }
        }
    }
}

void oc_text(oc_canvas *canvas, int x, int y, int scale, uint32_t color, const char *format, ...) {
    char text[128];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    int column = 0;
    for (int i = 0; i < length && text[i]; i++) {
        if (text[i] == '\n') {
            column = 0;
            y += OC_TEXT_HEIGHT * scale;
            continue;
        }
        draw_letter(canvas, x + column * OC_TEXT_WIDTH * scale, y, scale, color, text[i]);
        column++;
    }
}
