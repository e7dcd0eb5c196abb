'use strict';

/* Which way is better, for asv's pages, which take every rise for the worse.

   Loaded after asv's own scripts. asv hands each finished table to stupidtable before it shows or sorts it, and
   each graph to flot: both are met there. A benchmark's direction stands in index.json; without one, less is
   better, and its rows stay as asv made them but for a word beside the colour.

   asv's scripts have no stability promise. A table that is not as expected keeps asv's colours, and a line on
   the page says how to read it. */
(function($) {
    /* One line for all that asv shows in its own colours, without jQuery, which may be what is missing */
    function warn() {
        var line = document.getElementById('not-directed') || document.createElement('div');
        line.id = 'not-directed';
        line.setAttribute('role', 'alert');
        line.style.cssText = 'position: fixed; bottom: 0; left: 0; right: 0; padding: 8px 16px; z-index: 2000;'
            + 'background: #fcf8e3; color: #5f4a25';
        line.textContent = 'This version of asv takes every rise for worse, in its colours and its order. '
            + 'For rates, read them the other way.';
        document.body.appendChild(line);
    }

    if (!$ || !$.fn.stupidtable || !$.plot) {
        document.addEventListener('DOMContentLoaded', warn);
        return;
    }

    /* asv's pages fetch what they show, which a browser forbids to a page from a disk: they stay blank, so say why. */
    if (window.location.protocol === 'file:') {
        $(function() {
            var folder = decodeURIComponent(window.location.pathname.replace(/\/[^\/]*$/, ''));
            var quoted = "'" + folder.replace(/'/g, "'\\''") + "'";
            var ours = $('#nav-li-harness a').attr('href');
            var note = $('<div id="from-a-disk" class="alert alert-warning" role="alert"/>')
                .css({position: 'absolute', top: '70px', left: '5%', right: '5%', zIndex: 2000})
                .append($('<h4/>').text("asv's pages need a web server"))
                .append($('<p/>').text('They fetch their data, and a browser lets no page from a disk do that. Serve the folder:'))
                .append($('<pre/>').text('python3 -m http.server --directory ' + quoted))
                .append($('<p/>').text('and open http://localhost:8000/.'));
            if (ours) {
                note.append($('<p/>').append($('<a/>').attr('href', ours).text('The GPU history works from a disk.')));
            }
            $('#error, .asv-navigation').remove();
            $('body').append(note);
        });
    }

    var WORSE = 'positive-change';   /* asv's name for a rise; it is drawn in red */
    var BETTER = 'negative-change';  /* green */
    var COLOURED = '.' + WORSE + ', .' + BETTER;

    /* The benchmark that a row's first link leads to */
    function benchmark_of(row) {
        var href = row.children('td').first().find('a').attr('href');
        var name = $.asv.parse_hash_string(href).location[0];
        return $.asv.main_json.benchmarks[name];
    }

    /* True where every row has a benchmark, and cells that pass */
    function every_row(table, passes) {
        return table.children('tbody').children('tr').get().every(function(row) {
            return benchmark_of($(row)) && passes($(row).children('td'));
        });
    }

    function has_change(cells) {
        var classes = cells.filter('.change').attr('class');
        return ['change', 'change ' + WORSE, 'change ' + BETTER].indexOf(classes) >= 0;
    }

    /* Adapt a table of a known shape, and return true; leave another one alone */
    function adapt(table) {
        var factor = table.find('th[data-sort="factor"]');
        try {
            if (factor.length && every_row(table, function(cells) { return cells.length > factor.index(); })) {
                adapt_regressions(table);
                return true;
            }
            if (!factor.length && every_row(table, has_change)) {
                adapt_list(table);
                return true;
            }
        }
        catch (error) {
            console.warn('asv-direction.js: ' + error);
        }
        return false;
    }

    function each_row(table, adapt) {
        table.children('tbody').children('tr').each(function() {
            var row = $(this);
            adapt(row, benchmark_of(row).direction);
        });
    }

    function adapt_list(table) {
        table.find('th').eq(2).attr('title', 'Sorted by how much worse');
        each_row(table, function(row, direction) {
            var cell = row.children('td.change');
            if (direction === 'higher') {
                turn_change(cell);
            }
            else if (direction === 'none') {
                cell.removeClass(WORSE + ' ' + BETTER);
                cell.attr('data-sort-value', 0);
                cell.attr('title', 'Neither way is better');
            }
            if (cell.is(COLOURED)) {
                cell.append($('<span/>').text(cell.hasClass(WORSE) ? ' worse' : ' better'));
            }
        });
    }

    function turn_change(cell) {
        /* The percentage has the sign of the old value in it; the difference behind it, in brackets, has not. */
        var fell = cell.text().indexOf('(+') < 0;
        var ratio = 1 + parseFloat(cell.attr('data-sort-value')) / 100;
        var size = ratio > 0 ? 100 * (Math.max(ratio, 1 / ratio) - 1) : Infinity;
        if (cell.is(COLOURED)) {
            cell.toggleClass(WORSE, fell).toggleClass(BETTER, !fell);
        }
        cell.attr('data-sort-value', fell ? size : -size);
    }

    function adapt_regressions(table) {
        var column = table.find('th[data-sort="factor"]');
        column.attr('title', 'New / old; sorted by how much worse');
        each_row(table, function(row, direction) {
            var cell = row.children('td').eq(column.index());
            var factor = parseFloat(cell.text());
            if (direction === 'higher') {
                factor = factor > 0 ? 1 / factor : Infinity;
            }
            cell.attr('data-sort-value', factor);
        });
    }

    /* [unit, number] of what asv's pretty_unit has written. It puts a space before every unit but those of
       seconds and bytes, which it scales. */
    function quantity(text) {
        var match = text.match(/^(-?[0-9.]+(?:e[+-]?[0-9]+)?)( ?)(.*)$/);
        if (!match) {
            return ['', text === 'inf' ? Infinity : NaN];
        }
        var number = parseFloat(match[1]), unit = match[3];
        if (unit && !match[2]) {
            var scaled = $.asv.time_units.concat($.asv.mem_units).filter(function(entry) {
                return entry[0] === unit;
            })[0];
            if (scaled) {
                return [$.asv.time_units.indexOf(scaled) < 0 ? '' : 's', number * scaled[2]];
            }
        }
        return [unit, number];
    }

    function by_quantity(a, b) {
        a = quantity(String(a));
        b = quantity(String(b));
        return a[0] === b[0] ? a[1] - b[1] : a[0].localeCompare(b[0]);
    }

    var ADAPTED = 'harness-directed';
    var stupidtable = $.fn.stupidtable;
    $.fn.stupidtable = function(sorts) {
        var table = this;
        if (adapt(table)) {
            table.addClass(ADAPTED);
            if (table.find('th[data-sort="factor"]').length) {
                sorts = $.extend({}, sorts, {
                    'factor': function(a, b) { return parseFloat(a) - parseFloat(b); },
                    'value': by_quantity
                });
            }
        }
        return stupidtable.call(table, sorts);
    };
    $.extend($.fn.stupidtable, stupidtable);

    /* A table that is shown without having been through our hands, whichever way it came */
    $(function() {
        if (!$.asv || !$('#summarylist-body').length || !$('#regressions-body').length) {
            warn();
            return;
        }
        new MutationObserver(function(_, observer) {
            var tables = $('#summarylist-body table, #regressions-body table').not('.' + ADAPTED);
            if (tables.find('tbody tr').length) {
                warn();
                observer.disconnect();
            }
        }).observe(document.body, {childList: true, subtree: true});
    });

    var WORDS = {higher: 'higher is better', lower: 'lower is better'};
    var plot = $.plot;
    $.plot = function(placeholder, data, options) {
        var axis = options && options.yaxis;
        if (!axis || !axis.axisLabel || !$(placeholder).is('#main-graph')) {
            return plot(placeholder, data, options);
        }
        var name = $.asv.parse_hash_string(window.location.hash).location[0];
        var label = axis.axisLabel;
        var word = WORDS[($.asv.main_json.benchmarks[name] || {}).direction];
        axis.axisLabel = word ? label + ' (' + word + ')' : label;
        try {
            return plot(placeholder, data, options);
        }
        finally {
            axis.axisLabel = label;
        }
    };
    $.extend($.plot, plot);
})(window.jQuery);
