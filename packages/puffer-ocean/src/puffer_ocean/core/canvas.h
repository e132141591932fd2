/* Drawing into an RGB image in plain C: no display, no GPU, the same pixels everywhere.
 *
 * Coordinates are pixels, x to the right and y down, (0, 0) is the upper left corner of the image. A pixel belongs to
 * a shape if its centre does. Shapes are clipped to the image. Colours are 0xRRGGBB. */
#ifndef OC_CANVAS_H
#define OC_CANVAS_H

#include <stdint.h>

typedef struct {
    int width, height; /* pixels */
    uint8_t *pixels;   /* height rows of width triples red, green, blue */
} oc_canvas;

enum { /* width and height of one character cell at scale 1 */
    OC_TEXT_WIDTH = 6,
    OC_TEXT_HEIGHT = 8,
};

#if defined(__GNUC__)
#define OC_PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))
#else
#define OC_PRINTF_LIKE(text, first)
#endif

void oc_clear(oc_canvas *canvas, uint32_t color);
/* The box with upper left corner (x, y); width and height may be fractions. */
void oc_rect(oc_canvas *canvas, float x, float y, float width, float height, uint32_t color);
/* A line with round ends. */
void oc_line(oc_canvas *canvas, float x0, float y0, float x1, float y1, float thickness, uint32_t color);
void oc_circle(oc_canvas *canvas, float x, float y, float radius, uint32_t color);
void oc_triangle(oc_canvas *canvas, float x0, float y0, float x1, float y1, float x2, float y2, uint32_t color);
/* Text in a 5x7 font whose pixels are scale x scale; upper left corner at (x, y). Lower case is drawn as capitals. */
void oc_text(oc_canvas *canvas, int x, int y, int scale, uint32_t color, const char *format, ...)
    OC_PRINTF_LIKE(6, 7);

#endif
